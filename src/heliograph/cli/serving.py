"""REST for a running mirror: ``heliograph connect`` and ``run --listen``. Driver."""

from __future__ import annotations

import socket
from collections.abc import Callable

from heliograph.config import MirrorMakerConfig
from heliograph.config.providers import resolve
from heliograph.config.worker_keys import RestSettings as RestKeys
from heliograph.connect.api import Herder
from heliograph.connect.loggers import Loggers
from heliograph.connect.mirror_herder import MirrorHerder
from heliograph.connect.worker_config import WorkerConfig
from heliograph.rest.app import RestApp
from heliograph.rest.health import Health
from heliograph.rest.own_routes import Mirrored
from heliograph.rest.server import RestServer
from heliograph.rest.settings import RestSettings
from heliograph.service.handovers import FlowHandovers
from heliograph.service.mirror import Mirror, Unready

__all__ = ["serve_flows", "serve_worker"]


def serve_worker(config: WorkerConfig, herder: Herder, mirror: Mirror) -> RestServer:
    """The server of a Connect worker, not started; raises ConfigError."""
    settings = RestSettings.of(
        config.rest,
        listeners=config.listeners,
        admin_listeners=config.admin_addresses,
        tls=config.tls(),
        advertised_host=config.rest_advertised_host_name,
        allow_origin=config.access_control_allow_origin,
        allow_methods=config.access_control_allow_methods,
        response_headers=config.response_http_headers_config,
    )

    def unready() -> list[Unready]:
        status, word, message = herder.health()
        worker = [] if status == 200 else [Unready("worker", word, "", message)]
        return worker + mirror.unready()

    return _server(herder, settings, mirror, unready)


def serve_flows(
    config: MirrorMakerConfig, listen: str, mirror: Mirror, loggers: Loggers
) -> RestServer:
    """The server of ``run --listen HOST:PORT``, not started; raises ConfigError."""
    values = {key: entry.value for key, entry in config.entries.items()}
    keys = RestKeys.of(values, config.providers)
    address = listen if "://" in listen else f"http://{listen}"
    tls = {
        name.removeprefix("listeners.https."): resolve(value, config.providers)
        for name, value in values.items() if name.startswith("listeners.https.")
    }  # fmt: skip
    settings = RestSettings.of(keys, listeners=[address], tls=tls)
    made: list[RestServer] = []
    herder = MirrorHerder(mirror, _worker_id(made), changeable=keys.changes, loggers=loggers)
    handovers = FlowHandovers(lambda flow: mirror.supervisor(flow).config, mirror.events)
    made.append(_server(herder, settings, mirror, mirror.unready, handovers))
    return made[0]


def _server(
    herder: Herder, settings: RestSettings, mirror: Mirror, unready: Callable[[], list[Unready]],
    handovers: FlowHandovers | None = None,
) -> RestServer:  # fmt: skip
    mirror.history.start()
    mirrored = Mirrored(
        mirror.snapshot, mirror.events, mirror.supervisor, mirror.history, handovers
    )
    health = Health(mirror.pulse.stuck, unready)
    return RestServer(RestApp(herder, settings, mirrored, health), settings)


def _worker_id(made: list[RestServer]) -> Callable[[], str]:
    """This host, and the port that the server got."""

    def worker_id() -> str:
        return f"{socket.gethostname()}:{made[0].addresses[0].port}"

    return worker_id
