"""The course: an empty package that a reader fills, and the laws that judge it."""
