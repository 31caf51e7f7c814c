"""The one kind of error that the programs show to a person without a traceback."""


class UserError(Exception):
    """Something a person can mend: the program prints ``error: <message>`` and exits with 2."""
