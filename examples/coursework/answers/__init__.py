"""Answers: a right answer to each unit, written for the grader in slow loops; it spoils the course.

A known mistake of ``mistakes.toml`` is such an answer with some of its text replaced.
"""
