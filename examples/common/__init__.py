"""What ``classify.py`` and ``generate_text.py`` share: a run's folder, and a small training loop.

``run`` is the folder with its configuration, ``training`` the loop. The translator has its own of
both, which also train in several processes.
"""
