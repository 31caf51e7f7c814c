"""A solution of the course, with which its grader is tested."""
