"""The class of errors that the programs print in one line, without a traceback."""


class UserError(Exception):
    """An error that the user can correct: printed as ``error: <message>``, with exit status 2."""
