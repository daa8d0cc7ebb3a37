"""What ``heliograph offsets`` prints: tables, documents, CSV for spreadsheets and for Kafka."""

from __future__ import annotations

import csv
import io
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import click
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from heliograph.cli.documents import echo_document
from heliograph.cli.flows import console_for_tables
from heliograph.control.groups.offsets_csv import csv_line, writable
from heliograph.control.groups.start_rules import counted
from heliograph.control.groups.starts import GroupStart, Moved, Start, Strategy
from heliograph.model import Flow
from heliograph.shown import shown, shown_lines
from heliograph.units import duration, moment

__all__ = ["Shown", "echo_csv", "echo_export", "show", "show_moved"]

#: A spreadsheet takes what begins like this for a formula.
_FORMULA = ("=", "+", "-", "@")


@dataclass(frozen=True, slots=True)
class Shown:
    """What was found, and how it was asked for."""

    flow: Flow
    strategy: Strategy
    found: Mapping[str, GroupStart]
    notes: Sequence[str]
    rewind: bool

    def ahead(self, group: GroupStart) -> int:
        """How many of its partitions keep an offset that is ahead."""
        return 0 if self.rewind else sum(1 for s in group.starts.values() if s.ahead)


# -- tables -----------------------------------------------------------------------------------


def show(seen: Shown, *, verbose: bool) -> None:
    """A preview, group by group or partition by partition."""
    console = console_for_tables()
    target = seen.flow.target
    if not seen.found:
        console.print(f"{seen.flow}: no groups", markup=False, highlight=False)
    elif verbose:
        head = ("group", f"partition of {target}", f"on {seen.flow.source}", "starts at",
                f"committed on {target}", "skips", "repeats", "note")  # fmt: skip
        _table(console, f"{seen.flow}: where groups start", head, 2, partition_rows(seen))
    else:
        head = ("group", f"on {target}", "partitions", "skips", "repeats", "ahead", "as of", "note")
        _table(console, f"{seen.flow}: where groups start", head, 2, group_rows(seen))
    _notes(console, seen.notes)


def group_rows(seen: Shown) -> Iterator[tuple[str, ...]]:
    """The cells of each group."""
    for group in seen.found.values():
        counts = f"{len(group.starts)} of {len(group.starts) + len(group.unset)}"
        yield (
            group.group, group.state or "-", counts, f"{group.skips:,}", f"{group.repeats:,}",
            f"{seen.ahead(group)}", _age(group.as_of_ms), _note(group),
        )  # fmt: skip


def partition_rows(seen: Shown) -> Iterator[tuple[str, ...]]:
    """The cells of each partition, those without a start too."""
    for group in seen.found.values():
        if not group.starts and not group.unset:
            yield (group.group, "-", "-", "-", "-", "-", "-", group.reason)
        for p in sorted({*group.starts, *group.unset}):
            start = group.starts.get(p)
            if start is None:
                yield (group.group, str(p), "-", "-", "-", "-", "-", group.unset[p])
                continue
            said = [group.reason, start.note]
            if start.ahead and not seen.rewind:
                said.append(f"ahead by {start.ahead}: kept")
            yield (
                group.group, str(p), "-" if start.upstream is None else str(start.upstream),
                str(start.offset), "-" if start.committed < 0 else str(start.committed),
                f"{start.skips:,}", f"{start.repeats:,}", "; ".join(filter(None, said)),
            )  # fmt: skip


def moved_rows(moved: Mapping[str, Moved]) -> Iterator[tuple[str, ...]]:
    """The cells of each group that was written, or not."""
    for m in moved.values():
        yield (m.group, str(m.written), str(m.already), str(m.kept_ahead), m.reason or "moved")


def _table(
    console: Console, title: str, head: Sequence[str], texts: int, rows: Iterator[tuple[str, ...]]
) -> None:
    table = Table(title=escape(title), title_justify="left")
    for number, name in enumerate(head):
        right = texts <= number < len(head) - 1
        table.add_column(escape(name), justify="right" if right else "left", overflow="fold")
    for row in rows:
        table.add_row(*(escape(shown(cell)) for cell in row))
    console.print(table)


def _notes(console: Console, notes: Sequence[str]) -> None:
    for text in notes:
        said = escape(shown_lines(text))
        console.print(f"[yellow]note[/] {said}", highlight=False, soft_wrap=True)


def _note(group: GroupStart) -> str:
    """What to know of a group in a few words; ``--verbose`` has the rest."""
    said = [group.reason]
    for notes in ({p: s.note for p, s in group.starts.items() if s.note}, group.unset):
        # A group without starts says in its reason why.
        if notes and (group.starts or not group.reason):
            p, text = min(notes.items())
            said.append(
                f"{p}: {text}" + (f" (and {len(notes) - 1} more)" if notes.keys() - {p} else "")
            )
    return "; ".join(filter(None, said))


def _age(as_of_ms: int | None) -> str:
    if as_of_ms is None:
        return "-"
    return f"{duration(max(time.time() - as_of_ms / 1000, 0.0))} ago"


# -- for programs -----------------------------------------------------------------------------


def show_moved(seen: Shown, moved: Mapping[str, Moved] | None, output: str) -> None:
    """What was written; None: nothing was, only the preview. Tables, or one document."""
    if output in {"json", "yaml"}:
        echo_document(document(seen, moved), output)
        return
    rows = moved_rows(moved or {})
    head = ("group", "written", "already there", "ahead, kept", "result")
    if output == "csv":
        _echo_rows(head, rows)
        return
    console = console_for_tables()
    _table(console, f"{seen.flow}: groups on {seen.flow.target}", head, 1, rows)
    _notes(console, seen.notes)


def document(seen: Shown, moved: Mapping[str, Moved] | None) -> dict[str, object]:
    """All that is known, for JSON and YAML."""
    groups = []
    for group in seen.found.values():
        described: dict[str, object] = {
            "group": group.group, "state": group.state, "reason": group.reason,
            "skips": group.skips, "repeats": group.repeats, "as_of": _moment(group.as_of_ms),
            "starts": [_start(s) for _, s in sorted(group.starts.items())],
            "unset": [{**p._asdict(), "why": why} for p, why in sorted(group.unset.items())],
        }  # fmt: skip
        if moved is not None:
            m = moved[group.group]
            described["result"] = {
                "written": m.written, "already": m.already, "kept_ahead": m.kept_ahead,
                "reason": m.reason,
            }  # fmt: skip
        groups.append(described)
    return {
        "flow": str(seen.flow), "strategy": type(seen.strategy).__name__, "rewind": seen.rewind,
        "executed": moved is not None, "notes": list(seen.notes), "groups": groups,
    }  # fmt: skip


def _start(start: Start) -> dict[str, object]:
    return {
        **start.partition._asdict(), "offset": start.offset, "committed": start.committed,
        "upstream": start.upstream, "exact": start.exact, "skips": start.skips,
        "repeats": start.repeats, "ahead": start.ahead, "log_start": start.log.start,
        "log_end": start.log.end, "as_of": _moment(start.as_of_ms), "note": start.note,
    }  # fmt: skip


def _moment(ms: int | None) -> str | None:
    return None if ms is None else moment(ms / 1000)


# -- CSV --------------------------------------------------------------------------------------


def echo_csv(seen: Shown) -> None:
    """Every partition, with a head, for spreadsheets."""
    head = ("group", "partition", "source", "offset", "committed", "skips", "repeats", "note")
    _echo_rows(head, partition_rows(seen))


def _echo_rows(head: Sequence[str], rows: Iterator[tuple[str, ...]]) -> None:
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(head)
    writer.writerows([_harmless(cell) for cell in row] for row in rows)
    click.echo(out.getvalue(), nl=False)


def _harmless(cell: str) -> str:
    text = shown(cell)
    return f"'{text}" if text.startswith(_FORMULA) and text != "-" else text


def echo_export(seen: Shown) -> bool:
    """What Kafka's tool takes, byte for byte; whether every group could be written like that.

    Whoever reads it in again needs the very names; a terminal must not see them.
    """
    terminal = sys.stdout.isatty()
    left_out = [g for g in seen.found.values() if g.starts and not writable(g.group)]
    for group in seen.found.values():
        if not writable(group.group):
            continue
        name = shown(group.group) if terminal else group.group
        for p, start in sorted(group.starts.items()):
            if seen.rewind or not start.ahead:
                # click.echo would take what looks like a colour out of the name.
                sys.stdout.write(csv_line(name, p, start.offset) + "\n")
    for group in left_out:
        text = f"group {shown(group.group)} is left out: Kafka's CSV has no line ends in names"
        click.echo(text, err=True)
    ahead = sum(map(seen.ahead, seen.found.values()))
    kept = [f"left out, because it is ahead: {counted(ahead)}; --rewind has them"] if ahead else []
    for text in (*seen.notes, *kept):
        click.echo(f"note: {shown_lines(text)}", err=True)
    return not left_out
