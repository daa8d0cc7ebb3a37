"""Judges the file and this machine. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from heliograph.config.problems import Problem
from heliograph.doctor.facts import FileFacts, FolderFacts, MachineFacts
from heliograph.doctor.findings import Missing, Said, Scope, check, ok, problem, warning
from heliograph.units import amount

#: pyproject.toml: requires-python.
_OLDEST_PYTHON = (3, 11)
#: Spark's JVM with all that it needs beside its heap (`spark.session`), and the driver.
_FIXED_BYTES = 1 << 30
#: A Python worker before it holds any records.
_WORKER_BYTES = 150 << 20
#: Beside the connections to brokers; below the first it fails.
_LEAST_DESCRIPTORS, _GOOD_DESCRIPTORS = 256, 1024
#: Spark's scratch files and logs; jars and class archives.
_LEAST_FREE_BYTES, _GOOD_FREE_BYTES = 100 << 20, 1 << 30


@check("config-file", Scope.FILE, "errors, unknown keys and weak settings in the file")
def _config_file(facts: FileFacts) -> Iterator[Said]:
    for error in facts.errors:
        yield problem(_worded(error), error.hint or "correct it: nothing starts before")
    for one in facts.warnings:
        yield warning(_worded(one), one.hint or "correct it, or leave it out")
    if not facts.errors and not facts.warnings:
        flows = f"{facts.flows} flow{'' if facts.flows == 1 else 's'}"
        yield ok(f"it is valid; it enables {flows}")


def _worded(found: Problem) -> str:
    return f"{found.where}:{' ' + found.key + ':' if found.key else ''} {found.message}"


@check("python", Scope.MACHINE, "the version of Python")
def _python(facts: MachineFacts) -> Iterable[Said]:
    have, need = (".".join(map(str, v)) for v in (facts.python, _OLDEST_PYTHON))
    if facts.python < _OLDEST_PYTHON:
        return [problem(f"Python {have} is too old", f"use Python {need} or newer")]
    return [ok(f"Python {have}")]


@check("java", Scope.MACHINE, "whether there is a Java, new enough for Spark")
def _java(facts: MachineFacts) -> Iterable[Said]:
    if isinstance(facts.java, Missing):
        what, _, hint = facts.java.why.partition(" Install ")
        return [problem(what, f"Install {hint}" if hint else "install Java 17 or newer")]
    return [ok(facts.java)]


@check("memory", Scope.MACHINE, "whether Spark and all leases at once fit into memory")
def _memory(facts: MachineFacts) -> Iterable[Said]:
    need = _FIXED_BYTES + facts.cores * (_WORKER_BYTES + facts.buffer_bytes)
    text = (
        f"a mirror may take {amount(need)}B here, of {amount(facts.memory_bytes)}B"
        f" ({amount(facts.available_bytes)}B are free)"
    )
    do = "set heliograph.buffer.max.bytes or tasks.max lower, or give it more memory"
    if need > facts.memory_bytes:
        return [problem(text, do)]
    if need > facts.available_bytes:
        return [warning(text, do)]
    return [ok(text)]


@check(
    "descriptors",
    Scope.MACHINE,
    "whether a process may open enough files and sockets for its brokers",
)
def _descriptors(facts: MachineFacts) -> Iterable[Said]:
    # Those to brokers come on top of libraries, logs, the JVM's jars and the REST API's callers.
    least = _LEAST_DESCRIPTORS + facts.connections
    good = max(_GOOD_DESCRIPTORS, least + facts.connections)
    text = f"a process may open {facts.descriptors} files and sockets"
    if facts.connections:
        text += f", and have up to {facts.connections} connections to brokers"
    do = f"raise it: ulimit -n {_round_up(8 * good)}, or LimitNOFILE in a systemd unit"
    # -1: no limit.
    if 0 <= facts.descriptors < least:
        return [problem(text, do)]
    if 0 <= facts.descriptors < good:
        return [warning(text, do)]
    return [ok(text)]


def _round_up(number: int) -> int:
    return 1 << (number - 1).bit_length()


@check("cache-folder", Scope.MACHINE, "permissions and room of the cache folder")
def _cache(facts: MachineFacts) -> Iterable[Said]:
    folder, other = facts.cache, "HELIOGRAPH_CACHE=<folder> names another one"
    if not folder.writable:
        return [warning(f"{folder.path} is not writable: starts take longer", other)]
    if folder.others_write:
        text = f"other users may write to {folder.path}: what is kept there is not used"
        return [warning(text, f"chmod go-w {folder.path}")]
    return _room(folder, other)


@check("temporary-folder", Scope.MACHINE, "permissions and room of the temporary folder")
def _temporary(facts: MachineFacts) -> Iterable[Said]:
    other = "TMPDIR=<folder> names another one"
    if not facts.temporary.writable:
        text = f"{facts.temporary.path} is not writable: Spark cannot start"
        return [problem(text, other)]
    return _room(facts.temporary, other)


def _room(folder: FolderFacts, other: str) -> list[Said]:
    text = f"{folder.path}: {amount(folder.free_bytes)}B are free"
    if folder.free_bytes < _LEAST_FREE_BYTES:
        return [problem(text, f"make room; {other}")]
    if folder.free_bytes < _GOOD_FREE_BYTES:
        return [warning(text, f"make room; {other}")]
    return [ok(text)]


@check("listen", Scope.MACHINE, "whether the address of --listen is free")
def _listen(facts: MachineFacts) -> Iterable[Said]:
    if facts.listen is None:
        return [ok("no REST is asked for")]
    address, why = facts.listen
    if why:
        return [problem(f"{address} cannot be used: {why}", "name another address with --listen")]
    return [ok(f"{address} is free")]
