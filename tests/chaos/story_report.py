"""The table of a story, and the page that it goes to."""

import os
import time

from benchmarks.machine import commit

_COLUMNS = ("dashboard", "status", "metrics", "log", "ready", "live")


def table(story):
    """Lines of Markdown."""
    names = [n for n in _COLUMNS if any(v.name_ == n for v in story.views)]
    yield (
        "| fault | "
        + " | ".join(names)
        + " | told after s | well after s | longest difference | agree |"
    )
    yield "|---" * (len(names) + 5) + "|"
    for row in story.rows:
        said = [_cell(row.said.get(n, "")) for n in names]
        told = " / ".join(_seconds(row.told, n) for n in names)
        well = " / ".join(_seconds(row.well, n) for n in names)
        yield (
            f"| {row.name} | " + " | ".join(said) + f" | {told} | {well} | {row.longest:.1f} s |"
            f" {'no' if row.wrong else 'yes'} |"
        )


def _seconds(found, name):
    return f"{found[name]:.1f}" if name in found else "-"


def _cell(text, most=140):
    text = " ".join(text.split()).replace("|", "\\|")
    return text if len(text) <= most else text[: most - 3] + "..."


def differing(story):
    """A line for each thing on which views did not agree."""
    return [f"{row.name}: {text}" for row in story.rows for text in row.wrong] + story.wrong


def report(story, minutes, arguments):
    """The page under benchmarks/results."""
    verdict = story.verdict
    lines = [
        "# Do all views tell the same story?", "",
        f"    {arguments}", "",
        f"{time.strftime('%Y-%m-%d')}, commit {commit()}: {len(story.rows)} faults in"
        f" {minutes:.1f} minutes, seed {story.options['seed']}, load average at the end"
        f" {os.getloadavg()[0]:.1f}"
        f" on {os.cpu_count()} cores. {_outcome(story)}", "",
        "Seconds are in the order of the columns; `-`: not told. *Told after* counts from the"
        f" injection (partitions are stalled after {story.stalled_after} s), *well after* from when"
        " the repair was ordered: a broker that was killed starts within it. *Longest difference*"
        " is for how long, for certain, one view said healthy while another did not; more than"
        f" {story.bound:.0f} s is a disagreement. `ready` is `/health/ready`, which says whether"
        " flows do their work and counts no partitions; `live` is `/health/live`, which must be 200"
        " from the first fault to the last. *healthy* and *nothing* with an event: a fault that"
        " nobody has to mend, and that is told. Each fault is injected once in the order of the"
        " table, and then again as long as `MINUTES` allows.", "",
        *table(story), "",
        "What was done, and what `heliograph status FILE` said of it (exit code, whom it asked, how"
        " long that took):", "",
        "| fault | what was done | status FILE |", "|---|---|---|",
        *(f"| {r.name} | {_cell(r.did)} | {_cell(r.by_file)} |" for r in story.rows), "",
        f"At the end: {verdict.checked:,} records checked, {verdict.lost:,} lost,"
        f" {verdict.behind:,} not there, {verdict.repeated:,} repeated, {verdict.reordered:,} out"
        f" of order. `heliograph verify`, {story.verified}.",
    ]  # fmt: skip
    lines += ["", *(f"- {text}" for text in differing(story))] if not story.agree else []
    lines += ["", *story.notes] if story.notes else []
    return "\n".join(lines) + "\n"


def _outcome(story):
    return "All views agree." if story.agree else "They do not agree; see the end."
