"""Sends a list of requests to any Connect REST API, and says where two of them differ.

`connect_cases.STEPS` is the list. `answers` runs it against a base URL, `differences` compares with
what another one answered, `accepted` knows the differences that we want, with reasons.
``connect_answers.json`` has the answers of a real ConnectDistributed:

    python tests/compat/connect_contract.py            # starts one, prints its answers as a table
    python tests/compat/connect_contract.py --record   # and writes connect_answers.json
    python tests/compat/connect_contract.py URL SOURCE TARGET   # asks another, prints what differs
"""

from __future__ import annotations

import http.client
import json
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import urlsplit

RECORDED = Path(__file__).with_name("connect_answers.json")
JSON_TYPE = {"Content-Type": "application/json"}
#: A step that never settles is a defect, a machine that is slow is not.
SETTLE_SECONDS = 120.0
_ANSWER_SECONDS = 100.0  # Connect itself gives up after 90 s
_PAUSE_SECONDS = 0.1
#: What Connect's clients repeat: kafka-ui, AKHQ, kcctl and Strimzi.
_REPEATED = re.compile(r"rebalance|stale configuration|no known leader|conflicting operation")
#: Of what is different each time, that it is there and of which type.
_VOLATILE = ("commit", "kafka_cluster_id", "last_modified", "trace", "discoverTimestamp")


class Answer(NamedTuple):
    """``body`` is parsed if it is JSON, None if it is empty."""

    status: int
    headers: Mapping[str, str]
    body: Any


def whole(body: Any) -> Any:
    """All of the body counts."""
    return body


def nothing(_body: Any) -> Any:
    """Only the status counts: the body is a page of Jetty, or a text of Java."""
    return None


def shape(body: Any) -> Any:
    """Names and types count, and the code of an error."""
    match body:
        case dict():
            return {k: v if k == "error_code" else shape(v) for k, v in body.items()}
        case list():
            return [shape(element) for element in body[:1]]
        case _:
            return None if body is None else type(body).__name__


def unordered(body: Any) -> Any:
    """The order of lists does not count."""
    match body:
        case dict():
            return {key: unordered(value) for key, value in body.items()}
        case list():
            return sorted(map(unordered, body), key=lambda one: json.dumps(one, sort_keys=True))
        case _:
            return body


def keyed(body: Any) -> Any:
    """The values of a map have the same shape; its keys do not count. There is one at least."""
    return shape(next(iter(body.values()))) if isinstance(body, dict) and body else body


def definitions(body: Any) -> Any:
    """The definitions of a plugin's keys by name, with their places; without the texts."""
    if not isinstance(body, list):
        return body
    return {
        one["name"]: {k: v for k, v in one.items() if k != "documentation"} | {"place": place}
        for place, one in enumerate(body)
    }


def values(body: Any) -> Any:
    """The values of a validation by key, and whether each has a definition."""
    if not isinstance(body, dict) or "configs" not in body:
        return body
    found = {
        one["value"]["name"]: one["value"] | {"defined": one["definition"] is not None}
        for one in body["configs"]
    }
    return body | {"configs": found}


def errors(body: Any) -> Any:
    """The keys of a validation that have errors, and how many all have."""
    if not isinstance(body, dict) or "configs" not in body:
        return body
    found = (one["value"] for one in body["configs"])
    return body | {"configs": {one["name"]: one["errors"] for one in found if one["errors"]}}


@dataclass(frozen=True)
class Step:
    """A request, and what of the answer must be alike.

    Attributes:
        name: the number of the case in the contract, and what is special.
        request: method and path. ``{source}`` and ``{target}`` stand for bootstrap servers here and
            in the body.
        status: what the real worker answers.
        body: a JSON value; text or bytes are sent as they are.
        headers: JSON's type unless given; None: none at all.
        see: what of the body counts.
        until: asked again until it is true of the answer.
    """

    name: str
    request: str
    status: int = 200
    body: Any = None
    headers: Mapping[str, str] | None = field(default_factory=lambda: JSON_TYPE)
    see: Callable[[Any], Any] = whole
    until: Callable[[Answer], bool] | None = None


class Difference(NamedTuple):
    """``where`` is ``status``, ``headers/<name>`` or ``body`` with the way into it."""

    step: str
    where: str
    real: Any
    ours: Any

    @property
    def text(self) -> str:
        return f"{self.where}: real {self.real!r}, ours {self.ours!r}"

    def __str__(self) -> str:
        return f"{self.step}: {self.text}"


class Api:
    """A Connect REST API, and the clusters that its connectors are given."""

    def __init__(self, base_url: str, source: str, target: str) -> None:
        self.address = urlsplit(base_url).netloc
        self._names = {"{source}": source, "{target}": target}

    def answer(self, step: Step) -> Answer:
        """Sends the request until clients would be content with the answer."""
        deadline = time.monotonic() + SETTLE_SECONDS
        while True:
            found = self.send(step)
            settled = not _repeated(found) and (step.until is None or step.until(found))
            if settled or time.monotonic() > deadline:
                return found
            time.sleep(_PAUSE_SECONDS)  # between two questions, as any client does

    def send(self, step: Step) -> Answer:
        """Sends the request once."""
        method, path = step.request.split(" ", 1)
        data = self._encoded(step.body)
        connection = http.client.HTTPConnection(self.address, timeout=_ANSWER_SECONDS)
        try:
            connection.putrequest(method, path, skip_accept_encoding=True)
            for name, value in (step.headers or {}).items():
                connection.putheader(name, value)
            if data is not None:
                connection.putheader("Content-Length", str(len(data)))
            connection.endheaders(data)
            response = connection.getresponse()
            text = response.read().decode("utf-8", "replace")
        finally:
            connection.close()
        # Names of headers are alike whatever their letters; uvicorn sends small ones.
        headers = {name.title(): value for name, value in response.getheaders()}
        return Answer(response.status, headers, _parsed(self._neutral(text)))

    def seen(self, step: Step, found: Answer) -> dict[str, Any]:
        """What counts of an answer, without addresses and what else no two workers share."""
        seen: dict[str, Any] = {"status": found.status}
        if step.see is not nothing:
            kind = found.headers.get("Content-Type", "").partition(";")[0]
            headers = {"Content-Type": kind} if found.body is not None else {}
            if "Location" in found.headers:
                headers["Location"] = self._neutral(found.headers["Location"])
            if "Allow" in found.headers:
                methods = sorted(re.split(r",\s*", found.headers["Allow"]))
                headers["Allow"] = ",".join(methods)
            seen |= {"headers": headers, "body": step.see(_masked(found.body))}
        return seen

    def _encoded(self, body: Any) -> bytes | None:
        if body is None or isinstance(body, bytes):
            return body
        text = body if isinstance(body, str) else json.dumps(body)
        for name, value in self._names.items():
            text = text.replace(name, value)
        return text.encode()

    def _neutral(self, text: str) -> str:
        text = text.replace(self.address, "{worker}")
        for name, value in self._names.items():
            text = text.replace(value, name)
        return text


def _repeated(found: Answer) -> bool:
    # Workers that stood still for some seconds join their group again. None was recorded so.
    if "UNASSIGNED" in json.dumps(found.body):
        return True
    if found.status not in {409, 500} or not isinstance(found.body, dict):
        return False
    return _REPEATED.search(str(found.body.get("message"))) is not None


def _parsed(text: str) -> Any:
    try:
        return json.loads(text) if text else None
    except ValueError:
        return text


def _masked(body: Any) -> Any:
    match body:
        case dict():
            return {
                key: shape(value) if key in _VOLATILE else _masked(value)
                for key, value in body.items()
            }
        case list():
            return [_masked(element) for element in body]
        case _:
            return body


def answers(api: Api, steps: Iterable[Step]) -> dict[str, dict[str, Any]]:
    """What counts of the answer to each step, by its name, asked in order."""
    return {step.name: api.seen(step, api.answer(step)) for step in steps}


def differences(
    real: Mapping[str, Mapping[str, Any]], ours: Mapping[str, Mapping[str, Any]]
) -> list[Difference]:
    """Where two runs of the same steps differ, one for each value."""
    found = []
    for name, left in real.items():
        a, b = dict(_leaves("", left)), dict(_leaves("", ours.get(name, {})))
        found += [
            Difference(name, where, a.get(where, "absent"), b.get(where, "absent"))
            for where in dict.fromkeys([*a, *b])
            if a.get(where, "absent") != b.get(where, "absent")
        ]
    return found


def _leaves(where: str, value: Any) -> Iterator[tuple[str, Any]]:
    match value:
        case dict() if value:
            for key, inner in value.items():
                yield from _leaves(f"{where}/{key}" if where else key, inner)
        case list() if value:
            for index, inner in enumerate(value):
                yield from _leaves(f"{where}/{index}", inner)
        case _:
            yield where, value


def accepted(
    difference: Difference, table: Sequence[tuple[str, str, str]]
) -> tuple[str, str, str] | None:
    """The first row (steps, texts, reason) whose patterns match; see `connect_cases.ACCEPTED`."""
    for row in table:
        if fnmatchcase(difference.step, row[0]) and fnmatchcase(difference.text, row[1]):
            return row
    return None


def wrong(
    real: Mapping[str, Mapping[str, Any]],
    ours: Mapping[str, Mapping[str, Any]],
    table: Sequence[tuple[str, str, str]],
) -> list[str]:
    """The differences that nobody has accepted, as lines."""
    return [str(one) for one in differences(real, ours) if accepted(one, table) is None]


def table_of(steps: Iterable[Step], found: Mapping[str, Mapping[str, Any]]) -> str:
    """A Markdown table: what was asked, and what was answered."""
    lines = ["| case | request | status | answer |", "|---|---|---|---|"]
    for step in steps:
        seen = found[step.name]
        text = json.dumps(seen.get("body"), ensure_ascii=False)
        shown = text if len(text) <= 300 else f"{text[:300]} ... ({len(text)} characters)"
        cells = (step.name, step.request, str(seen["status"]), shown.replace("|", "\\|"))
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines)


def record(found: Mapping[str, Mapping[str, Any]]) -> None:
    """Writes them to ``connect_answers.json``, a line for each step."""
    lines = (f"{json.dumps(k)}: {json.dumps(v, ensure_ascii=False)}" for k, v in found.items())
    RECORDED.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def recorded() -> dict[str, dict[str, Any]]:
    """The answers of the real worker."""
    return json.loads(RECORDED.read_text(encoding="utf-8"))


def _main(arguments: Sequence[str]) -> int:
    from connect_cases import ACCEPTED, STEPS, prepare

    from heliograph.lab import Lab
    from heliograph.lab.connect_worker import ConnectWorker

    if len(arguments) == 3:
        prepare(arguments[1])
        lines = wrong(recorded(), answers(Api(*arguments), STEPS), ACCEPTED)
        print("\n".join(lines) or "no differences")
        return 1 if lines else 0
    with tempfile.TemporaryDirectory() as folder, Lab(folder) as lab:
        worker = ConnectWorker(lab["B"].client_properties(), f"{folder}/worker")
        worker.start()
        try:
            worker.wait_ready()
            prepare(lab["A"].bootstrap)
            api = Api(worker.url, lab["A"].bootstrap, lab["B"].bootstrap)
            found = answers(api, STEPS)
        finally:
            worker.stop()
    print(table_of(STEPS, found))
    if "--record" in arguments:
        record(found)
    return 0


if __name__ == "__main__":
    sys.path.append(str(Path(__file__).parents[1] / "chaos"))
    # The module that the cases import, not this second copy of it.
    from connect_contract import _main as main

    sys.exit(main(sys.argv[1:]))
