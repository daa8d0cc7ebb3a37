"""The options of the log, of commands that mirror until they are stopped. Driver."""

from __future__ import annotations

import logging
import re
import signal
import threading
from collections.abc import Callable
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from heliograph.cli.flows import Command
from heliograph.connect.loggers import Loggers

if TYPE_CHECKING:
    from heliograph.spark.session import SparkLog

__all__ = ["LogSettings", "log_options", "more_on_signal"]

log = logging.getLogger(__name__)

_LEVELS = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}
_SPARK_LEVELS = {"debug": "DEBUG", "info": "INFO", "warning": "WARN", "error": "ERROR"}
_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
#: How long SIGUSR1 has all lines logged.
_MORE_SECONDS = 600.0


@dataclass(frozen=True, slots=True)
class LogSettings:
    """What is logged and where.

    Attributes:
        level: of lines that are shown; changed at run time by `Loggers`.
        form: ``text`` or ``json``.
        file: None: the log is what ``-o`` shows.
        most_bytes: of the file; 0: any number. ``keep`` older ones stay.
        spark_level: of Spark's own log, which is beside the file.
    """

    level: int = logging.INFO
    form: str = "text"
    file: Path | None = None
    most_bytes: int = 0
    keep: int = 0
    spark_level: str = "ERROR"

    @property
    def spark(self) -> SparkLog:
        """Where Spark logs: beside the file, if there is one."""
        # Commands that do not mirror import this module, too.
        from heliograph.spark.session import SparkLog  # noqa: PLC0415

        beside = self.file.with_name(f"{self.file.name}.spark") if self.file is not None else None
        return SparkLog(self.spark_level, beside)


class _Size(click.ParamType[int]):
    """Bytes, or with K, M or G behind them."""

    name = "size"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        found = re.fullmatch(r"(\d{1,12})([KMG]?)", str(value).strip().upper())
        if found is None:
            self.fail(f"{value!r} is no size: 500M, for instance, or 0", param, ctx)
        return int(found[1]) * _UNITS[found[2]]


def log_options(command: Command) -> Command:
    """All options of the log; the command gets them as ``log``, a `LogSettings`."""

    @wraps(command)
    def with_log(
        log_level: str, log_format: str, log_file: Path | None, log_file_size: int,
        log_file_keep: int, spark_log_level: str, **others: Any,
    ) -> Any:  # fmt: skip
        made = LogSettings(
            _LEVELS[log_level], log_format, log_file, log_file_size, log_file_keep,
            _SPARK_LEVELS[spark_log_level],
        )  # fmt: skip
        return command(log=made, **others)

    made: Command = with_log
    for option in reversed((
        _option("--log-level", type=click.Choice(list(_LEVELS), case_sensitive=False),
                default="info", show_default=True, help="The least level that is logged."),
        _option("--log-format", type=click.Choice(["text", "json"]), default="text",
                show_default=True, help="Of the log file, and of lines that -o auto shows."),
        _option("--log-file", type=click.Path(path_type=Path, dir_okay=False),
                help="Where the log goes; -o auto shows it no more then."),
        _option("--log-file-size", type=_Size(), default="100M", show_default=True,
                help="Begin a new log file before this size; 0: never."),
        _option("--log-file-keep", type=click.IntRange(0, 1000), default=5, show_default=True,
                help="How many older log files stay: PATH.1, PATH.2 ..."),
        _option("--spark-log-level", type=click.Choice(list(_SPARK_LEVELS), case_sensitive=False),
                default="error", show_default=True,
                help="Of Spark's own log, in PATH.spark beside the log file."),
    )):  # fmt: skip
        made = option(made)
    return made


def _option(name: str, **how: Any) -> Callable[[Command], Command]:
    twin = f"HELIOGRAPH_{name.strip('-').replace('-', '_').upper()}"
    return click.option(name, envvar=twin, show_envvar=True, **how)


def more_on_signal(loggers: Loggers) -> None:
    """From now on SIGUSR1 has everything logged for ten minutes. Main thread."""

    def more() -> None:
        loggers.set_level("root", "DEBUG", seconds=_MORE_SECONDS)
        log.info("SIGUSR1: everything is logged for %.0f s", _MORE_SECONDS)

    # In a thread: the main one may hold a lock of those that are taken.
    signal.signal(signal.SIGUSR1, lambda *_: threading.Thread(target=more, daemon=True).start())
