"""The version, in one place: the distribution and the documentation read it here."""

__version__ = "0.1.0"
