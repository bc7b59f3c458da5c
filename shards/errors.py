"""The errors that are meant for people: one line that says what, where and what to do next.

The command line prints them without a traceback and turns their class into the exit code (`exit_code`).
"""


class ViewkitError(Exception):
    """Base of every error a person can act on; anything else that escapes is a bug and keeps its traceback."""

    exit_code = 1


class DataError(ViewkitError):
    """Data on disk is missing, damaged or unusable, or a job could not be finished. Exit code 1."""

    exit_code = 1


class MissingError(DataError):
    """A column or artifact that another stage has to write first is not there. Exit code 1."""


class ConfigError(ViewkitError):
    """An option or a configuration is impossible. Raised before any file is opened. Exit code 2."""

    exit_code = 2


class RefusedError(ViewkitError):
    """Going on would mix or overwrite somebody's work: another config, a newer format, a second run. Exit code 3."""

    exit_code = 3
