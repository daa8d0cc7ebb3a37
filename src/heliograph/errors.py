"""Errors that a person reads. Each has a stable code, says what, where, and what to do next.

HeliographError
+-- ConfigError      the file or a key in it (exit code 2, as MM2)
+-- StartError       a cluster, credentials, Spark or Java is not there (exit code 3, as MM2)
+-- LabError         a lab cluster cannot be fetched, started or stopped (exit code 1)
+-- PartitionError   one partition cannot go on; the others do
"""


class HeliographError(Exception):
    """Base of every error shown without a traceback.

    Attributes:
        code: stable and greppable, e.g. ``config.unknown-alias``.
        hint: the next step for the user; may be empty.
    """

    exit_code = 2

    def __init__(self, code: str, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.code = code
        self.hint = hint

    def __str__(self) -> str:
        text = f"[{self.code}] {super().__str__()}"
        return f"{text}\n  -> {self.hint}" if self.hint else text


class ConfigError(HeliographError):
    """The configuration is wrong; nothing was started."""


class StartError(HeliographError):
    """What a command or a flow needs is not there; MM2 exits with 3 here too."""

    exit_code = 3


class LabError(HeliographError):
    """A lab cluster could not be fetched, started or stopped."""

    exit_code = 1


class PartitionError(HeliographError):
    """One partition cannot go on. Raised and kept per partition; neighbours are not disturbed."""


class WireError(Exception):
    """Base of everything that wire/ raises."""


class ConnectionFailed(WireError):
    """No connection, or it broke. Always worth another try while the mirror runs."""


class DamagedAnswer(ConnectionFailed):
    """An answer that no broker can have given: bytes were changed on their way, or on its disk."""
