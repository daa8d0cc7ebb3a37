"""What can go wrong on the wire, and the one place that decides what is worth another try."""

from __future__ import annotations

from kafka import errors as kafka_errors

from heliograph.errors import ConnectionFailed, DamagedAnswer, WireError
from heliograph.shown import shown

__all__ = [
    "CORRUPT_MESSAGE",
    "FETCH_SESSION_ID_NOT_FOUND",
    "FETCH_SESSION_TOPIC_ID_ERROR",
    "INVALID_FETCH_SESSION_EPOCH",
    "INVALID_PRODUCER_EPOCH",
    "KAFKA_STORAGE_ERROR",
    "MESSAGE_TOO_LARGE",
    "NONE",
    "NOT_ENOUGH_REPLICAS",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "OFFSET_OUT_OF_RANGE",
    "OUT_OF_ORDER_SEQUENCE_NUMBER",
    "TOPIC_ALREADY_EXISTS",
    "TOPIC_AUTHORIZATION_FAILED",
    "UNKNOWN_TOPIC_ID",
    "UNKNOWN_TOPIC_OR_PARTITION",
    "AuthenticationFailed",
    "BrokerError",
    "ConnectionFailed",
    "CredentialsRefused",
    "DamagedAnswer",
    "NoAnswer",
    "NotKafka",
    "WireError",
    "check",
    "error_name",
    "is_retriable",
]

NONE = 0
OFFSET_OUT_OF_RANGE = 1
CORRUPT_MESSAGE = 2
UNKNOWN_TOPIC_OR_PARTITION = 3
MESSAGE_TOO_LARGE = 10
NOT_ENOUGH_REPLICAS = 19
NOT_ENOUGH_REPLICAS_AFTER_APPEND = 20
TOPIC_AUTHORIZATION_FAILED = 29
TOPIC_ALREADY_EXISTS = 36
OUT_OF_ORDER_SEQUENCE_NUMBER = 45
INVALID_PRODUCER_EPOCH = 47
KAFKA_STORAGE_ERROR = 56
FETCH_SESSION_ID_NOT_FOUND = 70
INVALID_FETCH_SESSION_EPOCH = 71
UNKNOWN_TOPIC_ID = 100
FETCH_SESSION_TOPIC_ID_ERROR = 106


class NoAnswer(ConnectionFailed):
    """A broker that said nothing in time: stopped, cut off, or very busy."""


class NotKafka(WireError):
    """Something answered, but not with the Kafka protocol."""


class AuthenticationFailed(WireError):
    """Credentials refused or TLS handshake failed; trying again will not help."""


class CredentialsRefused(AuthenticationFailed):
    """A broker has looked at our credentials and does not accept them."""


class BrokerError(WireError):
    """A broker answered with an error code."""

    def __init__(self, code: int, what: str, detail: str | None = None) -> None:
        self.code = code
        self.name = error_name(code)
        super().__init__(f"{what}: {self.name}" + (f" ({shown(detail)})" if detail else ""))


def error_name(code: int) -> str:
    """Kafka's name for an error code, e.g. ``NOT_LEADER_OR_FOLLOWER (6)``."""
    error = kafka_errors.for_code(code)
    message = getattr(error, "message", None) or error.__name__
    return f"{message} ({code})"


#: Error codes that kafka-python calls fatal (or does not know) but that go away by themselves.
_ALSO_RETRIABLE = frozenset({
    UNKNOWN_TOPIC_OR_PARTITION,  # metadata of a fresh topic has not reached this broker yet
    KAFKA_STORAGE_ERROR,         # another replica takes over
    74,   # FENCED_LEADER_EPOCH
    75,   # UNKNOWN_LEADER_EPOCH
    UNKNOWN_TOPIC_ID,            # as 3, for requests that name topics by id
    103,  # INCONSISTENT_TOPIC_ID: re-created, metadata decides what to do
})  # fmt: skip

#: Retriable for kafka-python, but here a statement about the log, not about the moment.
_NOT_RETRIABLE = frozenset({OUT_OF_ORDER_SEQUENCE_NUMBER, CORRUPT_MESSAGE, OFFSET_OUT_OF_RANGE})


def is_retriable(error: BaseException | int) -> bool:
    """Whether the same request may succeed later without anybody's help.

    The only judge of that in the package. Connection failures always are; authentication failures
    and non-Kafka peers never are; broker codes follow Kafka's own classification with the
    exceptions named above.
    """
    if isinstance(error, ConnectionFailed):
        return True
    if isinstance(error, BrokerError):
        error = error.code
    if not isinstance(error, int):
        return False
    if error in _NOT_RETRIABLE:
        return False
    return error in _ALSO_RETRIABLE or bool(kafka_errors.for_code(error).retriable)


def check(code: int, what: str, detail: str | None = None) -> None:
    """Raise BrokerError unless ``code`` is NONE."""
    if code != NONE:
        raise BrokerError(code, what, detail)
