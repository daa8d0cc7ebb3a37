"""Whoever may write to a mirrored topic, or to the folder a mirror is started in, harms nobody."""

import time
from contextlib import suppress

import psutil
import pytest
from bombs import bomb, small_records
from mirror_process import MirrorProcess, client, configure, ends

from heliograph.batch.records import Record, build
from heliograph.model import TopicPartition
from heliograph.wire import admin, log

_MEGABYTE = 1 << 20


@pytest.fixture
def sides(lab):
    a, b = client(lab["A"]), client(lab["B"])
    yield a, b
    a.close()
    b.close()


def peak(mirror, until):
    """The most memory that a worker had until something holds."""
    most = 0
    deadline = time.monotonic() + 300
    while not until():
        assert time.monotonic() < deadline, mirror.log_path.read_text()
        for worker in mirror.tree()[2]:
            with suppress(psutil.NoSuchProcess):
                most = max(most, worker.memory_info().rss)
        time.sleep(0.02)
    return most


def planted(folder):
    """Modules in a folder that leave a trace when they are imported; returns the trace."""
    trace = folder / "trace"
    for name in ("pandas", "pyarrow", "numpy", "click", "psutil", "sitecustomize"):
        code = f"open({str(trace)!r}, 'a').write({name!r})\nraise ImportError({name!r})\n"
        (folder / f"{name}.py").write_text(code)
    return trace


@pytest.mark.full
def test_f_bombs_cost_a_worker_little_memory_and_neighbours_go_on(lab, sides, topic_name, tmp_path):
    a, b = sides
    names = [f"{topic_name}-{kind}" for kind in ("plain", "small", "appended", "records")]
    plain, small, appended, records = names
    config = configure(lab, tmp_path, f"{topic_name}.*", keys=["tasks.max = 1"])
    for name in names:
        configs = {"message.timestamp.type": "LogAppendTime"} if name == appended else {}
        assert not admin.create_topics(a, [admin.NewTopic(name, 1, 1, configs)], 30_000)
    now = int(time.time() * 1000)
    values = [Record(n, now, None, b"v" * 900) for n in range(1000)]
    for _ in range(20):
        log.append(a, TopicPartition(plain, 0), build(values))

    def all_there():
        return all(ends(b, f"A.{name}") == ends(a, name) for name in names)

    trace = planted(tmp_path)
    mirror = MirrorProcess(config, tmp_path / "mirror.log", folder=tmp_path)
    try:
        normal = peak(mirror, all_there)
        # 8 GB in all, which nobody has to expand.
        for _ in range(8):
            log.append(a, TopicPartition(small, 0), bomb(4, [1000 * _MEGABYTE], stamp=now))
            log.append(a, TopicPartition(records, 0), small_records(4, 100_000, 10, stamp=now))
        # This has to be built anew: 120 MB.
        log.append(a, TopicPartition(appended, 0), small_records(4, 12_000, 10_000, stamp=now))
        log.append(a, TopicPartition(plain, 0), build(values))
        hostile = peak(mirror, all_there)
        assert mirror.stop() == 0
    finally:
        mirror.destroy()
    assert not trace.exists(), trace.read_text()
    assert hostile < normal + 400 * _MEGABYTE, (normal >> 20, hostile >> 20)
