"""Survey: examine the models of other libraries, and list what was found on a page.

``python benchmarks/field_report.py results.jsonl`` checks the soundness of each model and records
its attention. ``cases`` finds the models and examples of their inputs, ``tiny`` shrinks
configurations, ``run`` examines each model in a process of its own, and ``page`` writes the tables.
"""
