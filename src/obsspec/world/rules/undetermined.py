"""The one error of the rules: something is not determined."""


class UndeterminedError(Exception):
    """A program needs something that is not known, or does something that is not covered."""
