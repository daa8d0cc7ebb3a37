"""Workers of a Connect cluster as their users run them, and the REST API that both kinds have."""

import json
import time
import urllib.error
import urllib.request

from mirror_process import MirrorProcess, wait_for

from heliograph.lab.connect_worker import ConnectWorker

#: Connect itself gives up after 90 s.
_ANSWER_SECONDS = 100
_SETTLE_SECONDS = 240
_MIRROR = "org.apache.kafka.connect.mirror"


class Rest:
    """A worker's REST API."""

    def __init__(self, url):
        self.url = url

    def ask(self, method, path, body=None):
        """(status, parsed body); what Connect's clients repeat, a rebalance, is repeated."""
        deadline = time.monotonic() + _SETTLE_SECONDS
        while True:
            status, answer = self._ask(method, path, body)
            if status not in {0, 409} or time.monotonic() > deadline:
                return status, answer
            time.sleep(0.2)

    def _ask(self, method, path, body):
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(
            f"{self.url}{path}", data, {"Content-Type": "application/json"}, method=method
        )
        try:
            with urllib.request.urlopen(request, timeout=_ANSWER_SECONDS) as answer:
                return answer.status, _parsed(answer.read())
        except urllib.error.HTTPError as error:
            return error.code, _parsed(error.read())
        except OSError as error:
            return 0, str(error)

    def must(self, method, path, body=None):
        """The parsed body of a success."""
        status, answer = self.ask(method, path, body)
        assert 200 <= status < 300, (method, path, status, answer)
        return answer

    def create(self, name, config):
        return self.must("POST", "/connectors", {"name": name, "config": config})

    def config(self, name):
        return self.must("GET", f"/connectors/{name}/config")

    def states(self):
        """{name: (state, states of its tasks)}; one that has no status yet is left out."""
        found = self.must("GET", "/connectors?expand=status")
        said = {name: one["status"] for name, one in found.items() if "status" in one}
        return {
            name: (one["connector"]["state"], [task["state"] for task in one["tasks"]])
            for name, one in said.items()
        }

    def status(self, name):
        """None if there is none yet."""
        status, answer = self.ask("GET", f"/connectors/{name}/status")
        return answer if status == 200 else None

    def await_state(self, name, state, tasks=None):
        """Wait until a connector is in a state, and so many tasks of it; returns its status."""
        seen = None

        def reached():
            nonlocal seen
            seen = self.status(name)
            if seen is None or seen["connector"]["state"] != state:
                return False
            return tasks is None or [t["state"] for t in seen["tasks"]] == [state] * tasks

        try:
            wait_for(reached, _SETTLE_SECONDS, f"{name} is {state}")
        except AssertionError as error:
            raise AssertionError(f"{error}: {seen}") from error
        return seen


def _parsed(data):
    try:
        return json.loads(data) if data else None
    except ValueError:
        return data


class ConnectProcess(MirrorProcess):
    """``heliograph connect`` with a worker file of the real Connect; ``rest`` asks it."""

    def __init__(self, described: ConnectWorker, log_path, *args, host=None):
        """``described`` has the file and the address; it is not started."""
        super().__init__(described.properties_path, log_path, *args, command="connect", host=host)
        self._described = described
        self.rest = Rest(described.url)
        self.worker_id = described.url.removeprefix("http://")

    def wait_ready(self):
        """Until it is a member of its group."""

        def healthy():
            assert self.running, self.log_path.read_text()
            return self._described.health()[0] == 200

        wait_for(healthy, _SETTLE_SECONDS, "the worker is healthy")


def connector(lab, kind, **keys):
    """The config of one of MM2's connectors from A to B; ``_`` in keys stands for a dot."""
    return {
        "connector.class": f"{_MIRROR}.{kind}Connector",
        "source.cluster.alias": "A",
        "target.cluster.alias": "B",
        "source.cluster.bootstrap.servers": lab["A"].bootstrap,
        "target.cluster.bootstrap.servers": lab["B"].bootstrap,
        "replication.factor": "1",
        "offset-syncs.topic.replication.factor": "1",
        "checkpoints.topic.replication.factor": "1",
        "heartbeats.topic.replication.factor": "1",
        "heartbeats.replication.enabled": "false",
        **{key.replace("_", "."): value for key, value in keys.items()},
    }
