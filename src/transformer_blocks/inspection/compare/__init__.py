"""Comparison of two models: where they first differ, and the cause."""
