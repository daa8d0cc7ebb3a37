"""Connect's routes: paths, codes and bodies as a real worker has them. Runs in the REST server.

The answers come from a `Herder`. Configs are shown as they are stored: templates are never
resolved.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any
from urllib.parse import quote

from heliograph.connect.api import (
    ConnectError,
    ConnectorInfo,
    ConnectorStatus,
    Herder,
    Initial,
    TaskStatus,
)
from heliograph.rest import bodies, schemas
from heliograph.rest.errors import plain_error
from heliograph.rest.routing import Answer, Call, Route
from heliograph.rest.settings import Limits, Role
from heliograph.shown import shown

__all__ = ["connect_routes"]

#: Log4j's, which Connect knows.
_LEVELS = frozenset({"OFF", "FATAL", "ERROR", "WARN", "INFO", "DEBUG", "TRACE", "ALL"})
#: What a URI's path keeps as it is: RFC 3986.
_PATH_SAFE = "/!$&'()*+,;=:@-._~"
#: A level that is set for longer is set for good.
_MOST_SECONDS = 86_400
_INTEGER = re.compile(r"[+-]?[0-9]{1,10}")


def connect_routes(herder: Herder, limits: Limits | None = None) -> list[Route]:
    """Every route of a Connect worker."""
    made = _ConnectRoutes(herder)
    health_seconds = (limits or Limits()).health_seconds
    return [
        *made.about(health_seconds), *made.connectors(), *made.lives(), *made.tasks(),
        *made.positions(), *made.plugins(), *made.loggers(), *made.between_workers(),
    ]  # fmt: skip


class _ConnectRoutes:
    """Handlers; each returns what a worker would."""

    def __init__(self, herder: Herder) -> None:
        self._herder = herder

    # -- the worker ---------------------------------------------------------------------------

    def about(self, health_seconds: float) -> list[Route]:
        return [
            Route(method="GET", path="/", role=Role.VIEWER, consumes=False,
                  summary="Version and cluster", handler=self._about, answers=schemas.SERVER),
            Route(method="GET", path="/health", role=None, consumes=False, summary="Health",
                  handler=self._health, answers=schemas.HEALTH,
                  seconds=health_seconds, shared=False,
                  ok={200: "Healthy", 500: "Unhealthy", 503: "Starting"}),
        ]  # fmt: skip

    def _about(self, _: Call) -> Answer:
        return Answer(dict(self._herder.server_info()))

    def _health(self, _: Call) -> Answer:
        status, word, message = self._herder.health()
        return Answer({"status": word, "message": message}, status)

    # -- connectors ---------------------------------------------------------------------------

    def connectors(self) -> list[Route]:
        one = "/connectors/{connector}"
        return [
            Route(method="GET", path="/connectors", role=Role.VIEWER, handler=self._list,
                  answers=schemas.CONNECTORS, summary="Names of all connectors, or more of each",
                  query={"expand": "info or status; may be given twice"}),
            Route(method="POST", path="/connectors", role=Role.ADMIN, handler=self._create,
                  answers=schemas.CONNECTOR,
                  summary="Create a connector", changes=True, body=schemas.NEW,
                  ok={201: "Created"}),
            Route(method="GET", path=one, role=Role.VIEWER, handler=self._info,
                  answers=schemas.CONNECTOR, summary="A connector"),
            Route(method="DELETE", path=one, role=Role.ADMIN, handler=self._delete, answers=None,
                  summary="Delete a connector", changes=True, ok={204: "Deleted"}),
            Route(method="GET", path=f"{one}/config", role=Role.VIEWER, handler=self._config,
                  answers=schemas.STRINGS, summary="Its config, as it was given"),
            Route(method="PUT", path=f"{one}/config", role=Role.ADMIN, handler=self._put,
                  answers=schemas.CONNECTOR,
                  summary="Create it or replace its config", changes=True, body=schemas.STRINGS,
                  ok={200: "Replaced", 201: "Created"}),
            Route(method="PATCH", path=f"{one}/config", role=Role.ADMIN, handler=self._patch,
                  answers=schemas.CONNECTOR,
                  summary="Merge into its config; null removes a key", changes=True,
                  body=schemas.STRINGS),
            Route(method="GET", path=f"{one}/status", role=Role.VIEWER, handler=self._status,
                  answers=schemas.STATUS, summary="The states of it and its tasks"),
        ]  # fmt: skip

    def _list(self, call: Call) -> Answer:
        names = self._herder.connectors()
        wanted = call.query.get("expand")
        if wanted is None:
            return Answer(list(names))
        found = {}
        for name in names:
            try:
                found[name] = self._expanded(name, wanted)
            except ConnectError as error:
                # It was deleted meanwhile, or has no status yet.
                if error.status != 404:
                    raise
        return Answer(found)

    def _expanded(self, name: str, wanted: Sequence[str]) -> dict[str, Any]:
        made: dict[str, Any] = {}
        if "info" in wanted:
            made["info"] = _info(self._herder.info(name))
        if "status" in wanted:
            made["status"] = _status(self._herder.status(name))
        return made

    def _create(self, call: Call) -> Answer:
        name, given, initial = bodies.new_connector(call.body)
        _note(call, given, f"connector {shown(name)}")
        config = bodies.strings_of(name, given)
        info = self._herder.create(name, config, initial)
        return Answer(_info(info), 201, _location(call, name))

    def _info(self, call: Call) -> Answer:
        return Answer(_info(self._herder.info(call.path["connector"])))

    def _config(self, call: Call) -> Answer:
        return Answer(dict(self._herder.info(call.path["connector"]).config))

    def _put(self, call: Call) -> Answer:
        name = call.path["connector"]
        given = bodies.config_of(call.body)
        _note(call, given)
        new, info = self._herder.put_config(name, bodies.strings_of(name, given))
        return Answer(_info(info), 201 if new else 200, _location(call, name) if new else {})

    def _patch(self, call: Call) -> Answer:
        missing = (
            'Cannot invoke "java.util.Map.forEach(java.util.function.BiConsumer)"'
            ' because "patch" is null'
        )
        patch = bodies.config_of(call.body, missing)
        _note(call, patch)
        return Answer(_info(self._herder.patch_config(call.path["connector"], patch)))

    def _delete(self, call: Call) -> Answer:
        self._herder.delete(call.path["connector"])
        return Answer.empty(204)

    def _status(self, call: Call) -> Answer:
        return Answer(_status(self._herder.status(call.path["connector"])))

    # -- pause, stop, restart -----------------------------------------------------------------

    def lives(self) -> list[Route]:
        one = "/connectors/{connector}"
        return [
            Route(method="PUT", path=f"{one}/pause", role=Role.OPERATOR, changes=True,
                  handler=self._target(Initial.PAUSED, 202), answers=None,
                  summary="Pause it and its tasks",
                  ok={202: "It will pause"}),
            Route(method="PUT", path=f"{one}/resume", role=Role.OPERATOR, changes=True,
                  handler=self._target(Initial.RUNNING, 202), answers=None, summary="Let it go on",
                  ok={202: "It will go on"}),
            Route(method="PUT", path=f"{one}/stop", role=Role.OPERATOR, changes=True,
                  handler=self._target(Initial.STOPPED, 204), answers=None,
                  summary="Stop it: it has no tasks",
                  ok={204: "It will stop"}),
            Route(method="POST", path=f"{one}/restart", role=Role.OPERATOR, changes=True,
                  handler=self._restart, answers=schemas.STATUS,
                  summary="Restart it, and its tasks if asked to",
                  query={"includeTasks": "true: its tasks, too",
                         "onlyFailed": "true: only what has failed"},
                  ok={204: "It will restart", 202: "What will restart, if one of both is true"}),
        ]  # fmt: skip

    def _target(self, target: Initial, status: int) -> Callable[[Call], Answer]:
        def change(call: Call) -> Answer:
            self._herder.set_target(call.path["connector"], target)
            return Answer.empty(status)

        return change

    def _restart(self, call: Call) -> Answer:
        status = self._herder.restart(
            call.path["connector"],
            include_tasks=call.flag("includeTasks"), only_failed=call.flag("onlyFailed"),
        )  # fmt: skip
        return Answer.empty(204) if status is None else Answer(_status(status), 202)

    # -- tasks --------------------------------------------------------------------------------

    def tasks(self) -> list[Route]:
        one = "/connectors/{connector}/tasks"
        return [
            Route(method="GET", path=one, role=Role.VIEWER, handler=self._tasks,
                  answers=schemas.TASKS, summary="Its tasks and their configs"),
            Route(method="GET", path=f"{one}/{{task}}/status", role=Role.VIEWER,
                  handler=self._task_status, answers=schemas.TASK_STATUS,
                  summary="The state of a task"),
            Route(method="POST", path=f"{one}/{{task}}/restart", role=Role.OPERATOR,
                  changes=True, handler=self._restart_task, answers=None, summary="Restart a task",
                  ok={204: "It will restart"}),
        ]  # fmt: skip

    def _tasks(self, call: Call) -> Answer:
        return Answer([
            {"id": {"connector": task.connector, "task": task.task}, "config": dict(task.config)}
            for task in self._herder.tasks(call.path["connector"])
        ])  # fmt: skip

    def _task_status(self, call: Call) -> Answer:
        return Answer(_task(self._herder.task_status(call.path["connector"], _number(call))))

    def _restart_task(self, call: Call) -> Answer:
        self._herder.restart_task(call.path["connector"], _number(call))
        return Answer.empty(204)

    # -- topics and offsets -------------------------------------------------------------------

    def positions(self) -> list[Route]:
        one = "/connectors/{connector}"
        return [
            Route(method="GET", path=f"{one}/topics", role=Role.VIEWER, handler=self._topics,
                  answers=schemas.TOPICS, summary="Topics that it has written to"),
            Route(method="PUT", path=f"{one}/topics/reset", role=Role.OPERATOR, changes=True,
                  handler=self._reset_topics, answers=None,
                  summary="Forget them", ok={202: "Forgotten"}),
            Route(method="GET", path=f"{one}/offsets", role=Role.VIEWER, handler=self._offsets,
                  answers=schemas.STORED_OFFSETS, summary="What was copied last of each partition"),
            Route(method="PATCH", path=f"{one}/offsets", role=Role.ADMIN, changes=True,
                  handler=self._alter_offsets, answers=schemas.MESSAGE,
                  summary="Move positions of a stopped connector",
                  body=schemas.OFFSETS),
            Route(method="DELETE", path=f"{one}/offsets", role=Role.ADMIN, changes=True,
                  handler=self._reset_offsets, answers=schemas.MESSAGE,
                  summary="Forget its positions"),
        ]  # fmt: skip

    def _topics(self, call: Call) -> Answer:
        name = call.path["connector"]
        return Answer({name: {"topics": list(self._herder.topics(name))}})

    def _reset_topics(self, call: Call) -> Answer:
        self._herder.reset_topics(call.path["connector"])
        return Answer.empty(202)

    def _offsets(self, call: Call) -> Answer:
        return Answer({"offsets": [
            {"partition": dict(item.partition),
             "offset": None if item.offset is None else dict(item.offset)}
            for item in self._herder.offsets(call.path["connector"])
        ]})  # fmt: skip

    def _alter_offsets(self, call: Call) -> Answer:
        offsets = bodies.offsets_of(call.body)
        call.notes.append(f"{len(offsets)} partitions")
        message = self._herder.alter_offsets(call.path["connector"], offsets)
        return Answer({"message": message})

    def _reset_offsets(self, call: Call) -> Answer:
        return Answer({"message": self._herder.reset_offsets(call.path["connector"])})

    # -- plugins ------------------------------------------------------------------------------

    def plugins(self) -> list[Route]:
        one = "/connector-plugins/{plugin}/config"
        return [
            Route(method="GET", path="/connector-plugins", role=Role.VIEWER,
                  handler=self._plugins, answers=schemas.PLUGINS,
                  summary="Connectors that there are",
                  query={"connectorsOnly": "false: converters and the like, too"}),
            Route(method="GET", path=one, role=Role.VIEWER, handler=self._plugin_config,
                  answers=schemas.DEFINITIONS,
                  summary="The keys of a plugin", query={"version": "of the plugin"}),
            # It changes nothing, so whoever may see may ask.
            Route(method="PUT", path=f"{one}/validate", role=Role.VIEWER, body=schemas.VALIDATED,
                  handler=self._validate, answers=schemas.VALIDATION,
                  summary="What is wrong with a config"),
        ]  # fmt: skip

    def _plugins(self, call: Call) -> Answer:
        only = call.flag("connectorsOnly", default=True)
        return Answer([dict(p) for p in self._herder.plugins(connectors_only=only)])

    def _plugin_config(self, call: Call) -> Answer:
        found = self._herder.plugin_config(call.path["plugin"], call.text("version"))
        return Answer(list(found))

    def _validate(self, call: Call) -> Answer:
        config = bodies.config_of(call.body)
        return Answer(self._herder.validate(call.path["plugin"], config))

    # -- loggers ------------------------------------------------------------------------------

    def loggers(self) -> list[Route]:
        one = "/admin/loggers/{logger}"
        return [
            Route(method="GET", path="/admin/loggers", role=Role.VIEWER, handler=self._loggers,
                  answers=schemas.LOGGERS, summary="Log levels"),
            Route(method="GET", path=one, role=Role.VIEWER, handler=self._logger,
                  answers=schemas.LOGGER, summary="The level of a logger"),
            Route(method="PUT", path=one, role=Role.ADMIN, changes=True, body=schemas.LEVEL,
                  handler=self._set_level, answers=schemas.NAMES, summary="Set a level",
                  query={"scope": "worker (this one), or cluster",
                         "seconds": "for how long; for good without it"},
                  ok={200: "The loggers that it concerns", 204: "Every worker will do it"}),
        ]  # fmt: skip

    def _loggers(self, _: Call) -> Answer:
        return Answer({name: dict(level) for name, level in self._herder.loggers().items()})

    def _logger(self, call: Call) -> Answer:
        return Answer(dict(self._herder.logger(call.path["logger"])))

    def _set_level(self, call: Call) -> Answer:
        missing = 'Cannot invoke "java.util.Map.get(Object)" because "levelMap" is null'
        level = bodies.config_of(call.body, missing).get("level")
        if level is None:
            raise ConnectError(400, "Desired 'level' parameter was not specified in request.")
        if level.upper() not in _LEVELS:
            raise ConnectError(404, f"invalid log level '{level}'.")
        call.notes.append(level.upper())
        cluster = (call.text("scope") or "").lower() == "cluster"
        seconds = _seconds(call)
        if seconds is not None and cluster:
            raise ConnectError(400, "seconds is for one worker: not with scope=cluster")
        names = self._herder.set_level(
            call.path["logger"], level.upper(), cluster=cluster, seconds=seconds
        )
        return Answer.empty(204) if cluster else Answer(list(names))

    # -- between workers ----------------------------------------------------------------------

    def between_workers(self) -> list[Route]:
        """Workers of Heliograph do not talk by HTTP: nobody's signature is valid."""
        one = "/connectors/{connector}"
        return [
            Route(method="POST", path=f"{one}/tasks", role=Role.ADMIN, consumes=False,
                  handler=self._unsigned, answers=None,
                  summary="Between Connect's workers; always refused",
                  ok={204: "Never"}),
            Route(method="PUT", path=f"{one}/fence", role=Role.ADMIN, consumes=False,
                  handler=self._unsigned, answers=None,
                  summary="Between Connect's workers; always refused",
                  ok={204: "Never"}),
        ]  # fmt: skip

    def _unsigned(self, call: Call) -> Answer:
        if "x-connect-authorization" not in call.headers:
            raise ConnectError(400, "Internal request missing required signature")
        raise ConnectError(403, "Internal request contained invalid signature.")


def _number(call: Call) -> int:
    """A task's number, as Java reads an int."""
    text = call.path["task"]
    if not _INTEGER.fullmatch(text) or not -(1 << 31) <= int(text) < 1 << 31:
        raise plain_error(404)
    return int(text)


def _location(call: Call, name: str) -> dict[str, str]:
    return {"Location": f"{call.base}/connectors/{quote(name, safe=_PATH_SAFE)}"}


def _note(call: Call, config: Mapping[str, str | None], *more: str) -> None:
    """Keys are told, values never: they may be secrets."""
    keys = ", ".join(shown(key) for key in list(config)[:50])
    call.notes.extend((*more, f"keys {keys}"))


def _info(info: ConnectorInfo) -> dict[str, Any]:
    return {
        "name": info.name,
        "config": dict(info.config),
        "tasks": [{"connector": info.name, "task": number} for number in info.tasks],
        "type": info.type,
    }


def _status(status: ConnectorStatus) -> dict[str, Any]:
    return {
        "name": status.name,
        "connector": _state(status),
        "tasks": [_task(task) for task in status.tasks],
        "type": status.type,
    }


def _task(task: TaskStatus) -> dict[str, Any]:
    return {"id": task.task, **_state(task)}


def _state(of: ConnectorStatus | TaskStatus) -> dict[str, Any]:
    """Trace and version are left out if they are empty, as Connect does it."""
    made = {"state": str(of.state), "worker_id": of.worker_id}
    if of.trace:
        made["trace"] = of.trace
    if of.version:
        made["version"] = of.version
    return made


def _seconds(call: Call) -> float | None:
    """For how long a level is set; None: for good."""
    text = call.text("seconds")
    if text is None:
        return None
    if not _INTEGER.fullmatch(text) or not 0 < int(text) <= _MOST_SECONDS:
        raise ConnectError(400, f"seconds must be a number from 1 to {_MOST_SECONDS}")
    return float(text)
