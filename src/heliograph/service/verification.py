"""A verification: the plan, Spark jobs, a second look, the report. Runs in the driver."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import ExitStack
from datetime import UTC, datetime

from heliograph.config import FlowConfig
from heliograph.service.engine import Engine
from heliograph.verify.model import Difference, Range, RangeResult
from heliograph.verify.plan import Plan, Planner
from heliograph.verify.report import Report
from heliograph.verify.views import Choice
from heliograph.wire.cluster import ClusterClient

__all__ = ["Progress", "Verification"]

#: A task has work for a moment: small ranges share one.
_TASK_BYTES, _TASK_RANGES = 64 << 20, 100
#: Jobs at once: while the last tasks of one run, those of the next begin.
_JOBS = 2
#: A mirror that was about to correct its ledger has done so after this.
_SETTLE_SECONDS = 1.0
_WAKE_SECONDS = 0.2

#: Told after each job: ranges and bytes that are done, and all.
Progress = Callable[[int, int, int, int], None]


class Verification:
    """Verifies one flow; `run` once. Any thread may call `stop`."""

    def __init__(self, config: FlowConfig, choice: Choice, engine: Engine) -> None:
        self._config = config
        self._choice = choice
        self._engine = engine
        self._stopped = threading.Event()
        self._width = 1
        self.report: Report | None = None

    def stop(self) -> None:
        """End early: what was compared by then is in the report."""
        self._stopped.set()

    def run(self, planned: Callable[[Plan], None], progress: Progress) -> Report:
        """Compare all; raises VerifyError and WireError before anything is compared."""
        config, choice = self._config, self._choice
        began = datetime.now(UTC)
        with ExitStack() as stack:
            source = stack.enter_context(
                ClusterClient(config.source_client, f"{config.flow}|verify-source-plan")
            )
            target = stack.enter_context(
                ClusterClient(config.target_admin, f"{config.flow}|verify-target-plan")
            )
            planner = Planner(config, choice, source, target)
            plan = planner.plan()
            if plan.ranges:
                # Spark's start took until now, and is no part of the comparison.
                self._width = self._engine.leases_per_flow(1)
                self._engine.check_secrets([config.source_client, config.target_client])
            self.report = report = Report(
                flow=str(config.flow), began=f"{began:%Y-%m-%d %H:%M:%S} UTC",
                partitions=plan.reports, most=choice.most, complete=choice.complete,
                sample=choice.sample, seed=None if choice.sample is None else choice.seed,
                begin=choice.begin, end=choice.end, offered=plan.offered,
                problems=plan.problems, notes=plan.notes,
            )  # fmt: skip
            planned(plan)
            differences: list[Difference] = []
            compared_from = time.monotonic()
            try:
                for result in self._results(plan, planner, progress):
                    plan.by_number[result.number].add(result)
                    differences = _first(differences, result.differences, choice.most)
                    report.differences = differences
                    report.seconds = time.monotonic() - compared_from
            finally:
                report.interrupted = self._stopped.is_set()
        return report

    def _results(self, plan: Plan, planner: Planner, progress: Progress) -> Iterator[RangeResult]:
        """What was found, range by range; those at the end of a log are looked at twice."""
        total = sum(r.bytes for r in plan.ranges)
        ranges = {r.number: r for r in plan.ranges}
        done_bytes = 0
        doubtful: list[RangeResult] = []
        for done, result in enumerate(self._jobs(plan, plan.ranges), 1):
            done_bytes += ranges[result.number].bytes
            progress(done, len(ranges), done_bytes, total)
            if ranges[result.number].last and result.counts and not result.error:
                doubtful.append(result)
            else:
                yield result
        if doubtful:
            yield from self._second_look(plan, planner, ranges, doubtful)

    def _second_look(
        self,
        plan: Plan,
        planner: Planner,
        ranges: dict[int, Range],
        doubtful: Sequence[RangeResult],
    ) -> Iterator[RangeResult]:
        """A mirror that is at work may have written between our looks at the log and the ledger."""
        self._stopped.wait(_SETTLE_SECONDS)
        first = {result.number: result for result in doubtful}
        again = [] if self._stopped.is_set() else [planner.again(ranges[n]) for n in first]
        seen = set()
        for result in self._jobs(plan, [part for part in again if part is not None]):
            seen.add(result.number)
            yield result
        yield from (result for number, result in first.items() if number not in seen)

    def _jobs(self, plan: Plan, ranges: Sequence[Range]) -> Iterator[RangeResult]:
        """Jobs of a few tasks each, so that progress is seen and an end comes soon."""
        tasks = deque(_tasks(ranges))
        if not tasks:
            return
        with ThreadPoolExecutor(_JOBS, thread_name_prefix="verifying") as pool:
            running: dict[Future[list[RangeResult]], list[list[Range]]] = {}
            try:
                while (tasks and not self._stopped.is_set()) or running:
                    while tasks and len(running) < _JOBS and not self._stopped.is_set():
                        some = [tasks.popleft() for _ in range(min(self._width, len(tasks)))]
                        running[pool.submit(self._engine.run_checks, plan.context, some)] = some
                    done, _ = wait(running, _WAKE_SECONDS, FIRST_COMPLETED)
                    for future in done:
                        yield from _outcome(future, running.pop(future))
                    if self._stopped.is_set():
                        break
            finally:
                if running:
                    self._engine.cancel_checks()


def _outcome(
    future: Future[list[RangeResult]], tasks: Sequence[Sequence[Range]]
) -> Iterator[RangeResult]:
    """What a job found; if Spark gave it up, none of its ranges was compared."""
    error = future.exception()
    if error is None:
        yield from future.result()
        return
    why = f"Spark gave up: {(str(error).strip() or repr(error)).splitlines()[0]}"
    yield from (RangeResult(part.number, error=why) for task in tasks for part in task)


def _first(known: list[Difference], more: Sequence[Difference], most: int) -> list[Difference]:
    return sorted([*known, *more], key=lambda d: d.order)[:most] if more else known


def _tasks(ranges: Sequence[Range]) -> Iterator[list[Range]]:
    """Ranges put together; compacted partitions, which are never cut, come first."""
    task: list[Range] = []
    size = 0
    for part in sorted(ranges, key=lambda r: (not r.compacted, r.number)):
        if task and (size + part.bytes > _TASK_BYTES or len(task) >= _TASK_RANGES):
            yield task
            task, size = [], 0
        task.append(part)
        size += part.bytes
    if task:
        yield task
