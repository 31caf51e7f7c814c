"""Code that two or more of the example programs share.

A program imports this package, its own package and the library; no package imports another
program's. Read ``training`` first: the update, the plan and the loop. ``checkpoint`` saves a
training, ``run`` is the folder that it is saved in, ``distributed`` lets several processes train
together, and ``display`` shows the progress. Before the training, ``tokenizer`` and ``batching``
turn text into tensors; after it, ``searches`` are the decoding methods, and ``plots`` and
``tables`` show results. ``options``, ``commands``, ``program``, ``terminal``, ``files``,
``text_files``, ``packages`` and ``errors`` implement the command lines.
"""
