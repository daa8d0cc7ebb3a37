"""How fast a mirror catches up with a backlog, and at what cost."""

from __future__ import annotations

import time
from collections.abc import Callable

from benchmarks import verify
from benchmarks.backlog import Backlog
from benchmarks.bench import PARTITIONS, SOURCE, TARGET, Bench, MeasureError, Run
from benchmarks.contenders import Contender, HeliographProcess, Situation
from benchmarks.workloads import Workload
from heliograph.model import TopicPartition

__all__ = ["measure", "prepare", "warm_up"]

_POLL_SECONDS = 0.02
_START_SECONDS = 120.0
_STALL_SECONDS = 45.0


def warm_up(bench: Bench, workload: Workload, records: int) -> None:
    """Writes to both brokers and reads from the source's: their JITs favour nobody afterwards."""
    for alias in (SOURCE, TARGET):
        bench.create_topics(alias, {"warm-up": PARTITIONS})
        workload.fill(bench.lab, alias, "warm-up", records)
    bench.lab.tool(
        "ConsumerPerformance",
        *("--bootstrap-server", bench.lab[SOURCE].bootstrap, "--topic", "warm-up"),
        *("--num-records", str(records), "--timeout", "20000"),
        timeout_s=120,
    )
    for alias in (SOURCE, TARGET):
        bench.delete_topics(alias)


def prepare(bench: Bench, workload: Workload, records: int) -> Backlog:
    """Produces the backlog that all contenders copy."""
    bench.create_topics(SOURCE, {workload.name: PARTITIONS}, workload.configs)
    bench.say(f"{workload.name}: {workload.about}")
    if not workload.gaps:
        # A broker that has never seen such batches is slow with its first thousands: the target
        # gets a quarter of them beforehand, lest its JIT decide between those who write them as
        # they are and those who do not.
        bench.create_topics(TARGET, {"warm-up": PARTITIONS})
        workload.fill(bench.lab, TARGET, "warm-up", records // 4)
        bench.delete_topics(TARGET)
    began = time.monotonic()
    workload.fill(bench.lab, SOURCE, workload.name, records)
    took = time.monotonic() - began
    if workload.gaps:
        backlog = Backlog.read(bench.lab[SOURCE].bootstrap, workload.name)
    else:
        partitions = [TopicPartition(workload.name, i) for i in range(PARTITIONS)]
        backlog = Backlog.whole(bench.counters[SOURCE].ends(partitions))
    bench.say(f"{workload.name}: {backlog.records:,} records to copy, produced in {took:.1f} s")
    return backlog


def measure(
    bench: Bench, contender: Contender, workload: Workload, backlog: Backlog
) -> dict[str, float]:
    """Copies the backlog once.

    The window is from the first to the last record on the target. What was there at the first look
    is not counted, neither as records nor as CPU.
    """
    situation = Situation(
        workload.compression, gaps=workload.gaps, read_committed=workload.read_committed
    )
    with bench.run(contender, workload.name, situation, keep=[workload.name]) as run:
        remote = run.remote_partitions(workload.name, PARTITIONS)

        def count() -> int:
            ends = bench.counters[TARGET].ends(remote)
            return backlog.copied(ends, identical=contender.identical)

        first_s, first_records = bench.wait_for_first(run, count, _START_SECONDS, _POLL_SECONDS)
        startup_cpu_s = run.footprint.cpu_seconds()
        bench.say(f"  first record after {first_s:.1f} s")
        last_s = _wait_for_all(run, count, backlog.records)
        cpu_s = run.footprint.cpu_seconds() - startup_cpu_s
        records = backlog.records - first_records
        if records <= 0 or last_s <= first_s:
            raise MeasureError("the backlog is too small: all of it was there at the first look")
        time.sleep(0.5)  # a repeated record would come now
        figures = {
            "rate": records / (last_s - first_s),
            "cpu": cpu_s / records * 1e6,
            "memory": run.footprint.peak_mb,
            "first": first_s,
            "startup_cpu": startup_cpu_s,
        }
        if workload.gaps:
            # The ends of partitions are no proof here: see what a consumer sees.
            found = Backlog.read(bench.lab[TARGET].bootstrap, run.remote(workload.name))
            if contender.identical and found != backlog:
                raise MeasureError("the records on the target do not have the source's offsets")
            surplus = found.records - backlog.records
        else:
            surplus = count() - backlog.records
        if surplus < 0:
            raise MeasureError(f"{-surplus:,} records are missing on the target")
        figures["surplus"] = float(surplus)
        if isinstance(run.mirror, HeliographProcess):
            figures["verify"] = verify.measure(run.mirror.properties_path, workload.name)
            bench.say(f"  verified at {figures['verify']:,.0f} MB/s")
    bench.say(
        f"  {figures['rate']:,.0f} records/s, {figures['cpu']:.2f} CPU s per million,"
        f" {figures['memory']:,.0f} MB"
    )
    if surplus:
        bench.say(f"  [yellow]{surplus:+,} records on the target")
    return figures


def _wait_for_all(run: Run, count: Callable[[], int], expected: int) -> float:
    """Seconds since the start at which ``expected`` records are on the target."""
    best, progress_at = 0, time.monotonic()
    while True:
        seen = count()
        now = time.monotonic()
        if seen >= expected:
            return now - run.started
        if seen > best:
            best, progress_at = seen, now
        elif now - progress_at > _STALL_SECONDS:
            raise MeasureError(
                f"stuck at {best:,} of {expected:,} records for {_STALL_SECONDS:.0f} s"
            )
        run.mirror.require_running()
        time.sleep(_POLL_SECONDS)
