"""The class of errors that the programs print in one line, without a traceback."""


class UserError(Exception):
    """An error that the user can correct: printed as ``error: <message>``, with exit status 2.

    Attributes:
        rank: In a training of several processes, the one that found the error in its own part.
    """

    rank: int | None = None
