"""Code that two or more of the example programs share.

A program imports this package, its own package and the library; no package imports another
program's. ``options``, ``commands``, ``folders``, ``program``, ``terminal``, ``text_files``,
``packages`` and ``errors`` implement the command lines. ``tokenizer`` and ``batching`` turn text
into tensors. ``files``, ``configuration``, ``checkpoint`` and ``run`` save a training; ``learner``,
``distributed``, ``plan``, ``display`` and ``training`` run it. ``searches`` are the
decoding methods; ``plots``, ``tables`` and ``events`` show results.
"""
