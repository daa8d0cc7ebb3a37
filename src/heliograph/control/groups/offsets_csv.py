r"""Offsets as kafka-consumer-groups.sh writes (--export) and reads (--from-file) them. Pure.

Lines of ``group,topic,partition,offset``, or of ``topic,partition,offset`` for one group. Kafka
splits the file at line feeds before it looks at quotes, so a group's name cannot have one; all else
can be quoted. Nothing is escaped for spreadsheets: Kafka would take that for the name.
"""

from __future__ import annotations

import csv
from collections.abc import Mapping

from heliograph.errors import ConfigError
from heliograph.model import TopicPartition
from heliograph.shown import shown

__all__ = ["csv_line", "parse_offsets", "writable"]

_WITH_GROUP, _WITHOUT_GROUP = 4, 3
_MOST_OFFSET = (1 << 63) - 1
_FORMS = "lines are group,topic,partition,offset, or topic,partition,offset for one group"


def writable(group: str) -> bool:
    """Whether Kafka could read the group's name again."""
    return "\n" not in group and "\r" not in group


def csv_line(group: str, partition: TopicPartition, offset: int) -> str:
    """One line, without its end."""
    return f"{_quoted(group)},{partition.topic},{partition.partition},{offset}"


def _quoted(text: str) -> str:
    # Jackson, by which Kafka reads it, would trim blanks that are not quoted.
    plain = text and text == text.strip() and not any(c in text for c in ',"#\\')
    return text if plain else '"' + text.replace('"', '""') + '"'


def parse_offsets(
    text: str, origin: str, group: str | None = None
) -> Mapping[str, Mapping[TopicPartition, int]]:
    """Offsets by group and partition.

    Args:
        text: of the file.
        origin: what the file is called, for messages.
        group: whose offsets they are if the lines do not say.

    Raises:
        ConfigError: a line cannot be read, or says something else than an earlier one.
    """
    found: dict[str, dict[TopicPartition, int]] = {}
    for number, line in enumerate(text.removeprefix("\ufeff").split("\n"), 1):
        if not line.strip():
            continue
        where = f"{origin}:{number}"
        name, partition, offset = _parse(line.removesuffix("\r"), where, group)
        if found.setdefault(name, {}).setdefault(partition, offset) != offset:
            other = found[name][partition]
            raise _refused(where, f"{partition} is at {other} in an earlier line, at {offset} here")
    if not found:
        raise _refused(origin, "there are no offsets in it")
    return found


def _parse(line: str, where: str, group: str | None) -> tuple[str, TopicPartition, int]:
    try:
        [cells] = csv.reader([line], strict=True)
    except (csv.Error, ValueError) as error:
        raise _refused(where, f"cannot be read: {error}") from error
    if len(cells) == _WITHOUT_GROUP:
        if group is None:
            hint = "say with --group whose offsets they are"
            raise ConfigError("offsets.file", f"{where} names no group", hint)
        cells = [group, *cells]
    if len(cells) != _WITH_GROUP:
        raise _refused(where, f"has {len(cells)} fields")
    name, topic, partition, offset = cells
    if not topic:
        raise _refused(where, "names no topic")
    return name, TopicPartition(topic, _number(partition, where)), _number(offset, where)


def _number(text: str, where: str) -> int:
    text = text.strip()
    if not (text.isascii() and text.isdigit()) or len(text) > len(str(_MOST_OFFSET)):
        raise _refused(where, f"{shown(text)!r} is no offset or partition")
    if int(text) > _MOST_OFFSET:
        raise _refused(where, f"{text} is larger than any offset")
    return int(text)


def _refused(where: str, why: str) -> ConfigError:
    return ConfigError("offsets.file", f"{where}: {why}", _FORMS)
