"""The report of a soak: who lost and repeated what, which faults there were, who was back when."""

import time
from collections import Counter

from benchmarks.machine import commit, describe
from mirrors import DEFAULT_LEASE_SECONDS

#: In step: no more than this many seconds of the load behind.
_IN_STEP_SECONDS = 2.0
#: Options that are left out of the command where they are this.
_DEFAULTS = {"lease": DEFAULT_LEASE_SECONDS, "forget": 0.0, "dated_back": 0.0}


def write(path, soak, outcomes, faults, kinds):
    """Writes the report; ``soak`` and ``outcomes`` as the run left them."""
    options = soak.options
    facts = describe()
    command = f"make soak MINUTES={options['minutes']:g} SEED={options['seed']}"
    more = [
        f"--{name.replace('_', '-')} {options[name]:g}"
        for name in ("every", "rate", "patience", "catch_up", "lease", "forget", "dated_back")
        if options[name] != _DEFAULTS.get(name)
    ]
    more += ["--damage"] if options["damage"] else []
    more += [] if options["mm2"] else ["--no-mm2"]
    more += [f"--faults {','.join(options['faults'])}"] if options["faults"] else []
    command += f" SOAK_OPTIONS='{' '.join(more)}'"
    lines = [
        "# Soak: random faults under load, every record checked",
        "",
        f"{time.strftime('%Y-%m-%d %H:%M UTC', time.gmtime())}, commit {commit()}, `{command}`.",
        f"{facts['cores']} cores, {facts['model']}, {facts['memory']}; Kafka and MM2"
        f" {facts['kafka and connect-mirror']}.",
        f"{faults} faults of {kinds} kinds in {(soak.ended - soak.began) / 60:.0f} minutes, seed"
        f" {options['seed']}; {options['rate']:,} records/s to {len(soak.topics)} topics of"
        f" {len(soak.streams) // len(soak.topics)} partitions, some in transactions of which 15 %"
        " abort; two clusters of three brokers, `min.insync.replicas=2`.",
        "",
        "The model is the source's log as a read_committed consumer sees it; the source itself lost"
        f" {soak.source_loss:,} acknowledged records.",
        "",
        *_table(outcomes),
        "",
        *_damage(soak),
        "All mirrors copy the same topics between the same clusters at the same time. Faults of"
        " brokers and links are shared, so they hit all at once; a kill, stop or restart of the"
        " mirror hits each, and each is started again after the same pause, also when it was still"
        " recovering from the fault before. Kills of a Spark worker and of Spark's JVM hit"
        " Heliograph alone. At the end the load stops, faults are healed, and each mirror may catch"
        f" up; who makes no progress for {options['patience']} s is restarted once, as an operator"
        " would, and waited for as long again. MM2 has its defaults, but reads committed data, and"
        " in its second row `exactly.once.source.support=enabled`.",
        *(["", *soak.notes] if soak.notes else []),
        "",
        "## Faults by kind",
        "",
        "Seconds behind: how long after the fault was healed a mirror was within"
        f" {_IN_STEP_SECONDS:.0f} s of the source again, median and worst; `-`: not before the next"
        " fault, and how often.",
        "",
        *_kinds(soak, outcomes),
        "",
        "## Time line",
        "",
        *_time_line(soak, outcomes),
        "",
    ]
    examples = [e for o in outcomes for e in o.verdict.examples[:5] for e in [f"- {o.name}: {e}"]]
    if examples:
        lines += ["## What was found", "", *examples, ""]
    if soak._troubles:
        lines += ["## What the load's producers met", ""]
        lines += [f"- {text}: {count}" for text, count in sorted(soak._troubles.items())]
        lines.append("")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines), encoding="utf-8")


def _table(outcomes):
    rows = [
        "| mirror | records checked | lost | still not there | repeated | out of order | where it"
        " says so | aborted visible | nobody's | wrongly translated |"
        " memory start, middle, end (MB) | MB/min | ended by itself | caught up after |",
        "|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|---:|",
    ]
    for o in outcomes:
        v, weights = o.verdict, o.weights
        memory = ", ".join(f"{w:.0f}" for w in weights[:3]) if weights else "-"
        slope = f"{weights[3]:+.1f}" if weights else "-"
        translated = f"{v.mistranslated:,} of {v.translated:,}" if v.translated else "-"
        caught = "never" if o.caught_up is None else f"{o.caught_up:.0f} s"
        caught += ", after a restart" if o.helped else ""
        rows.append(
            f"| {o.name} | {v.checked:,} | {v.lost:,} | {v.behind:,} | {v.repeated:,} |"
            f" {v.reordered:,} | {v.named:,} | {v.aborted_visible:,} | {v.foreign:,} |"
            f" {translated} | {memory} | {slope} | {o.deaths} | {caught} |"
        )
    return rows


def _damage(soak):
    """What was done to the target itself, and what the mirror and its verify said of that."""
    options, lines = soak.options, []
    if options["forget"] or options["dated_back"]:
        lines.append(
            f"Records are dated {options['dated_back']:g} hours back; brokers of the target forget"
            f" a producer {options['forget'] or 86_400:g} s after the dates of its records, and"
            " look once a second."
        )
    if options["damage"]:
        lines.append(
            "The target's own logs are hit, too: others write to them, they are emptied to their"
            " ends when the checker has read them, and the ledger loses its tail on all disks."
            " Repeated and out of order are records outside of the target offsets that an event of"
            " the mirror names; those inside are counted as `where it says so`."
        )
    told = Counter(event["code"] for event in soak.events)
    if told:
        codes = ", ".join(f"{code} {count}" for code, count in sorted(told.items()))
        lines.append(f"Events of partitions: {codes}.")
    if soak.verified:
        lines.append(f"`heliograph verify --complete`: {soak.verified}")
        lines += [f"- wrong: {text}" for text in soak.dishonest]
        if not soak.dishonest:
            lines.append("That is what the checker knows of each partition.")
    return [line for text in lines for line in (text, "")]


def recoveries(soak, name):
    """[(fault's name, seconds from healed to in step, or None)] of one mirror."""
    most = soak.options["rate"] * _IN_STEP_SECONDS
    found = []
    nexts = [h.injected for h in soak.happened[1:]] + [float("inf")]
    for happening, until in zip(soak.happened, nexts, strict=True):
        back = next(
            (
                at - happening.healed
                for at, source, there in soak.watch.samples
                if happening.healed <= at < until and source - there[name] <= most
            ),
            None,
        )
        found.append((happening.name, back))
    return found


def _kinds(soak, outcomes):
    counts = Counter(h.name for h in soak.happened)
    by_mirror = {o.name: recoveries(soak, o.name) for o in outcomes}
    rows = [
        "| fault | times | " + " | ".join(o.name for o in outcomes) + " |",
        "|---|---:|" + "---:|" * len(outcomes),
    ]
    for name, times in sorted(counts.items()):
        cells = []
        for o in outcomes:
            backs = [back for fault, back in by_mirror[o.name] if fault == name]
            known = sorted(b for b in backs if b is not None)
            late = len(backs) - len(known)
            text = f"{known[len(known) // 2]:.0f}, {known[-1]:.0f}" if known else ""
            cells.append(text + (f" - ({late})" if late else ""))
        rows.append(f"| {name} | {times} | " + " | ".join(cells) + " |")
    return rows


def _time_line(soak, outcomes):
    rows = [
        "| at | fault | what was done | "
        + " | ".join(f"{o.name}: most behind" for o in outcomes)
        + " |",
        "|---:|---|---|" + "---:|" * len(outcomes),
    ]
    nexts = [h.injected for h in soak.happened[1:]] + [soak.ended]
    for happening, until in zip(soak.happened, nexts, strict=True):
        at = int(happening.injected - soak.began)
        cells = []
        for o in outcomes:
            lags = [
                source - there[o.name]
                for seconds, source, there in soak.watch.samples
                if happening.injected <= seconds < until
            ]
            cells.append(f"{max(lags, default=0):,}")
        rows.append(
            f"| {at // 60}:{at % 60:02} | {happening.name} | {happening.text} | "
            + " | ".join(cells)
            + " |"
        )
    return rows
