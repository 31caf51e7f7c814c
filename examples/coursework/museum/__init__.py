"""Museum: published faults of Transformers, and the checks that find them.

Many faults of Transformers raise no error: the training runs, the loss falls, and the model is
worse than it could be, or its loss is lower than a correct model's can be. Each file of this
package shows a fault that was published in the issues of a library: the thread, how it was missed,
the smallest model that has the same fault, the same model with the fault mended, and the check of
:mod:`transformer_blocks.inspection` that finds it. No check was written for an exhibit: each one is
called as you would call it for your own model.

``python examples/course.py museum`` lists the exhibits, and shows one by its name or number.
"""
