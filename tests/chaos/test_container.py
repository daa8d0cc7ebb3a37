"""The container file's promises without a container engine: nobody, and a read-only file system.

In a mount namespace everything is read-only but the volumes that the container file names. In it
the container's own command runs as a user without rights. What an image has besides, packages of
its own and tini, is not tried.
"""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from mirror_process import client, create_topic, ends, wait_for

from heliograph.batch.records import Record, build
from heliograph.lab.broker import HOST, free_ports
from heliograph.model import TopicPartition
from heliograph.wire import log

ROOT = Path(__file__).parents[2]
CONTAINERFILE = ROOT / "deploy" / "container" / "Containerfile"
#: As the image's user: without rights, but with a name, which Java asks for.
USER = ["setpriv", "--reuid=nobody", "--regid=65534", "--clear-groups", "--no-new-privs",
        "--bounding-set=-all", "--inh-caps=-all"]  # fmt: skip
#: $1: a folder that others may not enter, or nothing. What they need below it is bound to a new one
#: in its place: the folders of $2. $3: the volumes. The rest is the command.
NAMESPACE = """
set -e
closed=$1 needed=$2 volumes=$3
shift 3
mount --make-rprivate /
if [ -n "$closed" ]; then
    number=0
    for folder in $needed; do
        number=$((number + 1))
        mkdir -p kept-$number
        mount --bind "$folder" kept-$number
    done
    mount -t tmpfs -o mode=755 tmpfs "$closed"
    number=0
    for folder in $needed; do
        number=$((number + 1))
        mkdir -p "$folder"
        mount --bind kept-$number "$folder"
        umount kept-$number
    done
fi
for volume in $volumes; do
    mount -t tmpfs -o mode=1777,size=1g,noexec tmpfs "$volume"
done
mkdir /tmp/configuration
# Not by its path, which /tmp hides now.
mount --no-canonicalize --bind . /tmp/configuration
findmnt -rno TARGET | while read -r place; do
    case " $volumes " in *" $place "*) continue ;; esac
    mount -o remount,bind,ro "$place" 2>/dev/null || true
done
cd /
exec "$@"
"""
#: What a program could write to elsewhere, by habit.
PLACES = ["/", "/var/tmp", "/dev/shm", "/run", "/opt", "/etc", "/tmp/configuration", str(ROOT)]
TRY = "import os, sys; print(*[p for p in sys.argv[1:] if os.access(p, os.W_OK)])"


def _may():
    try:
        done = subprocess.run(
            ["unshare", "--mount", "sh", "-c", "mount -t tmpfs tmpfs /tmp && findmnt >/dev/null"],
            capture_output=True, check=False,
        )  # fmt: skip
    except OSError:
        return False
    return done.returncode == 0


def stated(word):
    """What stands behind a word of the container file, each time."""
    return re.findall(rf"^{word} (.*)$", CONTAINERFILE.read_text(), re.MULTILINE)


def inside(*command):
    """A command in a namespace of its own, as in the container. Started in the file's folder."""
    needed = {Path(sys.base_prefix), Path(sys.prefix), ROOT}
    above = {p for folder in needed for p in folder.parents}
    closed = min((p for p in above if not p.stat().st_mode & 0o001), default=None)
    below = [str(p) for p in needed if closed in p.parents] if closed else []
    return ["unshare", "--mount", "sh", "-c", NAMESPACE, "sh", str(closed or ""), " ".join(below),
            " ".join(stated("VOLUME")), *USER, *command]  # fmt: skip


@pytest.mark.full
@pytest.mark.skipif(
    os.geteuid() != 0 or not _may(), reason="a read-only file system needs root and unshare"
)
def test_the_container_command_runs_as_nobody_and_writes_to_its_volumes_only(
    lab, topic_name, tmp_path
):
    [port] = free_ports(1)
    folder = tmp_path / "configuration"
    folder.mkdir(mode=0o755)
    lines = [
        "clusters = A, B", f"A.bootstrap.servers = {lab['A'].bootstrap}",
        f"B.bootstrap.servers = {lab['B'].bootstrap}", "A->B.enabled = true",
        f"A->B.topics = {topic_name}", "replication.factor = 1",
        *(f"{x}.topic.replication.factor = 1"
          for x in ("heartbeats", "offset-syncs", "checkpoints")),
    ]  # fmt: skip
    file = folder / "mm2.properties"
    file.write_text("\n".join(lines))
    file.chmod(0o444)
    environment = {
        "PATH": os.environ["PATH"], "PYTHONDONTWRITEBYTECODE": "1",
        "PYTHONPATH": str(ROOT / "src"), "HELIOGRAPH_CACHE": "/opt/heliograph/cache",
    }  # fmt: skip
    writable = subprocess.run(
        inside(sys.executable, "-c", TRY, "/tmp", *PLACES), cwd=folder, env=environment,
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert (writable.stdout.split(), writable.stderr) == (stated("VOLUME"), "")

    [command] = map(json.loads, stated("CMD"))
    said = {"/etc/heliograph/mm2.properties": "/tmp/configuration/mm2.properties",
            "127.0.0.1:8083": f"{HOST}:{port}"}  # fmt: skip
    assert said.keys() <= set(command)
    arguments = [said.get(word, word) for word in command]
    a, b = client(lab["A"]), client(lab["B"])
    log_path = tmp_path / "mirror.log"
    with log_path.open("wb") as out:
        mirror = subprocess.Popen(
            inside(sys.executable, "-m", "heliograph", *arguments), cwd=folder, env=environment,
            stdout=out, stderr=out, start_new_session=True,
        )  # fmt: skip
    try:
        create_topic(a, topic_name, 1)
        log.append(a, TopicPartition(topic_name, 0), build([Record(0, 1, b"k", b"v")]))

        def copied():
            assert mirror.poll() is None, log_path.read_text()
            return sum(ends(b, f"A.{topic_name}").values()) == 1

        wait_for(copied, 240, "the record is mirrored")
        health = [sys.executable, "-m", "heliograph", "health", f"http://{HOST}:{port}", "--ready"]
        done = subprocess.run(health, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
        mirror.send_signal(signal.SIGTERM)
        assert mirror.wait(60) == 0
    finally:
        if mirror.poll() is None:
            os.killpg(mirror.pid, signal.SIGKILL)
            mirror.wait()
        a.close()
        b.close()
    told = log_path.read_text()
    assert "Read-only file system" not in told and "Permission denied" not in told, told
