"""What programs that train share: files, configurations, a run's folder, a small training loop.

``files`` writes files whole and locks a run's folder, ``configuration`` checks and seals
``config.json``; all programs use both. ``run`` is the folder of ``classify.py`` and
``generate_text.py``, ``training`` their loop. The translator has its own of both, which also train
in several processes.
"""
