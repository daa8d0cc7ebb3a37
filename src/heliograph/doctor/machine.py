"""Facts about the file and this machine. Runs in a command; talks to nobody."""

from __future__ import annotations

import os
import resource
import shutil
import socket
import stat
import sys
import tempfile
from contextlib import closing
from pathlib import Path

import psutil

from heliograph.config import MirrorMakerConfig
from heliograph.config.problems import ConfigErrors, Problem
from heliograph.copy.budget import default, memory_bytes
from heliograph.doctor.facts import FileFacts, FolderFacts, MachineFacts
from heliograph.doctor.findings import Missing
from heliograph.errors import ConfigError, StartError
from heliograph.jvm.artifacts import cache_folder
from heliograph.jvm.java import find_java, java_version
from heliograph.rest.settings import Listener

__all__ = ["look_at_file", "look_at_machine"]


def look_at_file(path: Path) -> tuple[FileFacts, MirrorMakerConfig | None]:
    """What is wrong with the file; its configuration if it can be used."""
    try:
        config = MirrorMakerConfig.from_file(path)
    except ConfigErrors as error:
        return FileFacts(error.problems), None
    except ConfigError as error:
        problem = Problem(error.code, str(path), "", str(error.args[0]), error.hint)
        return FileFacts([problem]), None
    flows = sum(flow.enabled for flow in config.flows)
    return FileFacts(warnings=config.warnings, flows=flows), config


def look_at_machine(config: MirrorMakerConfig | None, listen: str | None) -> MachineFacts:
    """This machine as it is now."""
    try:
        program = find_java()
        java: str | Missing = f"{program}, {java_version(program)}"
    except StartError as error:
        java = Missing(f"{error.args[0]} {error.hint}".strip())
    memory, cores = memory_bytes(), os.cpu_count() or 1
    configured = [f.buffer_max_bytes for f in config.flows if f.enabled] if config else []
    return MachineFacts(
        python=sys.version_info[:2],
        java=java,
        memory_bytes=memory,
        available_bytes=min(memory, psutil.virtual_memory().available),
        cores=cores,
        descriptors=resource.getrlimit(resource.RLIMIT_NOFILE)[0],
        buffer_bytes=max((b or default(memory, cores) for b in configured), default=0),
        cache=_folder(cache_folder()),
        temporary=_folder(Path(tempfile.gettempdir())),
        listen=None if listen is None else (listen, _why_not(listen)),
    )


def _folder(path: Path) -> FolderFacts:
    """The folder, or the one that it will be made in."""
    there = next(p for p in (path, *path.parents) if p.is_dir())
    mode = there.stat().st_mode
    # Whoever may write to a folder with this bit may not replace what others have there.
    shared = bool(mode & (stat.S_IWGRP | stat.S_IWOTH)) and not mode & stat.S_ISVTX
    free = shutil.disk_usage(there).free
    return FolderFacts(str(path), free, os.access(there, os.W_OK | os.X_OK), shared)


def _why_not(listen: str) -> str:
    """Why this address cannot be listened on, or nothing."""
    try:
        listener = Listener.parse(listen if "://" in listen else f"http://{listen}")
    except ConfigError as error:
        return str(error.args[0])
    family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
    try:
        with closing(socket.socket(family, socket.SOCK_STREAM)) as made:
            made.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            made.bind((listener.host, listener.port))
    except OSError as error:
        return error.strerror or str(error)
    return ""
