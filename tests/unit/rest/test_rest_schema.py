"""No request makes the API fail: schemathesis over the OpenAPI document, and odd configs.

Both herders are asked: that of a Connect worker, and that of ``run --listen``.
"""

from __future__ import annotations

import json
import logging
import re
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import requests
import schemathesis
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from schemathesis import GenerationMode
from schemathesis.core.result import Ok
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)
from serving import serving
from stored import ARROW, CONFIG, FileMirror, StoredWorker

from heliograph.config.keys import CLIENT_PREFIXES, KEYS
from heliograph.connect.connectors import plan_connector
from heliograph.connect.mirror_herder import MirrorHerder
from heliograph.connect.offset_changes import OffsetChanges
from heliograph.errors import HeliographError
from heliograph.rest.own_routes import Mirrored
from heliograph.rest.settings import Limits

RECORDED = Path(__file__).parents[2] / "compat" / "connect_answers.json"


class Allowed(NamedTuple):
    """A 500 that a real worker answers, too.

    ``step`` is where that is recorded (tests/compat/connect_cases.py). ``described``: even to
    bodies that are as the document says.
    """

    step: str
    operations: str
    message: str
    described: bool = False


_BODIES = (
    r"POST /connectors|(PUT|PATCH) /connectors/\S+/config|PATCH \S+/offsets|PUT \S+/validate"
    r"|PUT /admin/\S+"
)
#: All that may be answered with 500. Anything else is a defect.
ALLOWED = [
    Allowed("8 half an object", _BODIES, r"Unexpected (character|end-of-input)|Unrecognized token"),
    Allowed("8 bad UTF-8", _BODIES, r"Invalid UTF-8|Incomplete surrogate pair"),
    Allowed("8 an array", _BODIES, r"Cannot (deserialize value|construct instance) of "),
    Allowed("10 object as value", _BODIES, r"Cannot deserialize value of type `java.lang.String`"),
    Allowed("8 null", "POST /connectors", r'Cannot invoke "\S+CreateConnectorRequest.name\(\)"'),
    Allowed("8 config null", "POST /connectors", r'Cannot invoke "\S+" because "connectorConfig"'),
    Allowed("9 unknown field", r"POST /connectors", "Unrecognized field "),
    Allowed("18 bad initial state", "POST /connectors", "Cannot construct instance of `.*Initial"),
    Allowed("16 PUT no body", r"PUT /connectors/\S+/config", 'Cannot invoke "java.util.Map.get'),
    Allowed("22 no body", r"PATCH /connectors/\S+/config", 'Cannot invoke "java.util.Map.forEach'),
    Allowed("38 no body", r"PUT \S+/validate", 'Cannot invoke "java.util.Map.get'),
    Allowed("38 no class", r"PUT \S+/validate", r"\S+BadRequestException: Connector config contai"),
    Allowed("38 unknown class", r"PUT \S+/validate", r"\S+BadRequestException: Failed to find any",
            described=True),
    Allowed("39 no body", "PUT /admin/loggers/{logger}", 'Cannot invoke "java.util.Map.get'),
    Allowed("34 no body", r"PATCH \S+/offsets", 'Cannot invoke "\\S+ConnectorOffsets.offsets'),
    Allowed("34 unknown field", r"PATCH \S+/offsets", "Unrecognized field "),
    Allowed("34 null as partition", r"PATCH \S+/offsets", "Source partitions may not be null"),
    Allowed("34 no topic", r"PATCH \S+/offsets", "Source partition .* (is missing|has an invalid)",
            described=True),
    Allowed("34 no offset", r"PATCH \S+/offsets", "Source offset .* (is missing|has an invalid)",
            described=True),
]  # fmt: skip


def allowed(operation, message, *, described):
    """The row that allows a 500, if there is one."""
    for row in ALLOWED:
        fits = re.fullmatch(row.operations, operation) and re.match(row.message, message, re.DOTALL)
        if fits and (row.described or not described):
            return row
    return None


def test_a_real_worker_fails_as_well_where_we_may():
    recorded = json.loads(RECORDED.read_text(encoding="utf-8"))
    assert {row.step: recorded[row.step]["status"] for row in ALLOWED} == {
        row.step: 500 for row in ALLOWED
    }


# -- whom to ask ----------------------------------------------------------------------------------

_CHECKS = [status_code_conformance, content_type_conformance, response_schema_conformance]
#: Requests of one kind to one operation: 10, and 100 in `make chaos`.
_MOST = settings().max_examples // 10
#: What paths may name beside what schemathesis thinks of.
_KNOWN = {
    "plugin": ["MirrorSourceConnector", "MirrorCheckpoint"],
    "task": ["0", "7"],
    "logger": ["root", "heliograph.x"],
    "flow": ["A->B", "B->A"],
}


class Api:
    """An API that is served. ``names`` are those of its connectors."""

    def __init__(self, herder, mirror, names, seed, handovers=None):
        self.herder = herder
        self.known = {**_KNOWN, "connector": names}
        self.seed = seed
        self._mirrored = Mirrored(
            mirror.snapshot, mirror.events, mirror.supervisor, mirror.history, handovers
        )

    @contextmanager
    def served(self):
        with (
            serving(self.herder, self._mirrored, limits=Limits(requests_per_second=0)) as ask,
            requests.Session() as self.session,
        ):
            self.base = f"http://127.0.0.1:{ask.listener.port}"
            document = self.session.get(f"{self.base}/openapi.json").json()
            # They do not end; test_rest_own follows them.
            del document["paths"]["/heliograph/v1/events/stream"]
            del document["paths"]["/heliograph/v1/flows/stream"]
            schema = schemathesis.openapi.from_dict(document)
            found = list(schema.get_all_operations())
            self.operations = [one.ok() for one in found if isinstance(one, Ok)]
            assert len(self.operations) == len(found)
            yield self

    def send(self, case, mode):
        """Holds the answer against the document; fails for a 500 that is not allowed."""
        answer = case.call(base_url=self.base, session=self.session)
        refuse_failure(case.operation.label, answer, described=mode is GenerationMode.POSITIVE)
        case.validate_response(answer, checks=_CHECKS)


def refuse_failure(operation, answer, *, described=True):
    if answer.status_code == 500:
        message = answer.json()["message"]
        assert allowed(operation, message, described=described), (operation, message)


def _worker_api():
    worker = StoredWorker()
    names = ["C", ARROW, "still", "beats", "acme"]
    return Api(worker.herder, FileMirror(), names, worker.seed)


def _flows_api():
    mirror: Any = FileMirror()
    herder = MirrorHerder(mirror, lambda: "w:8083", changeable=True)
    return Api(herder, mirror, list(herder.connectors()), lambda: None, mirror.handovers)


@pytest.fixture(scope="module", params=[_worker_api, _flows_api], ids=["worker", "flows"])
def api(request):
    levels = {
        name: logger.level for name, logger in logging.root.manager.loggerDict.items()
        if isinstance(logger, logging.Logger)
    }  # fmt: skip
    with pytest.MonkeyPatch.context() as patch, request.param().served() as made:
        # It needs the source cluster; what comes before it is what is tested.
        patch.setattr(OffsetChanges, "_move", lambda *_: None)
        yield made
    for name, level in levels.items():
        logging.getLogger(name).setLevel(level)


def _requests_of(api, operation, mode):
    """What schemathesis makes of an operation, half of it about things that are there."""
    names = re.findall(r"\{(\w+)\}", operation.path)
    if not names:
        return operation.as_strategy(generation_mode=mode)
    known = st.fixed_dictionaries({name: st.sampled_from(api.known[name]) for name in names})
    about_known = known.flatmap(
        lambda found: operation.as_strategy(generation_mode=mode, path_parameters=found)
    )
    return st.one_of(about_known, operation.as_strategy(generation_mode=mode))


@pytest.mark.hypothesis
@pytest.mark.parametrize("mode", GenerationMode)
def test_no_request_fails_and_every_answer_is_as_described(api, mode):
    sent = {}
    for operation in api.operations:
        if mode is GenerationMode.NEGATIVE and not (operation.query or operation.body):
            continue  # there is nothing to be wrong
        api.seed()

        @given(case=_requests_of(api, operation, mode))
        @settings(max_examples=_MOST, suppress_health_check=list(HealthCheck))
        def ask(case):
            api.send(case, mode)
            sent[case.operation.label] = sent.get(case.operation.label, 0) + 1

        ask()
    # Of what has no parameters there is one request.
    assert len(sent) >= (40 if mode is GenerationMode.POSITIVE else 15)
    assert sum(sent.values()) >= 15 * _MOST


# -- configs that schemathesis does not think of --------------------------------------------------

# Without a class there is nothing to judge: validate answers 500 then, as Connect does.
_NAMES = sorted(
    {key.name.replace("*", "x") for key in KEYS if key.name != "connector.class"}
    | {prefix + key.name for prefix, _ in CLIENT_PREFIXES for key in KEYS if key.common}
)
_VALUES = st.one_of(
    st.sampled_from([
        "", " ", ",", "true", "maybe", "0", "-1", "+3", "1_0", "1.5", "1e400", "nan", "Infinity",
        "9" * 30, "\u0663", "\x00", "a\nb", "(", "[[a]]", "(?i)", "(a+)+b", "*", "\\", "a{1,99999}",
        "(?P<n>a)(?P=n)", "${file:/nowhere:x}", "${env:HOME}", "${x:y}", "${", "${file:}", "$",
        "http://", "https://u:p@h:99999/", "127.0.0.1", "[::1", ":1,:", "java.lang.Object",
        "x required;", 'a.B required u="', "-----BEGIN PRIVATE KEY-----",
    ]),
    st.text(max_size=8), st.none(),
)  # fmt: skip
_CLASSES = ("MirrorSource", "MirrorCheckpointConnector", CONFIG["connector.class"])
_CONFIGS = st.builds(
    lambda kind, odd: CONFIG | {"connector.class": kind} | odd,
    st.sampled_from(_CLASSES), st.dictionaries(st.sampled_from(_NAMES), _VALUES, max_size=5),
)  # fmt: skip


@pytest.fixture(scope="module")
def served():
    made = StoredWorker()
    with serving(made.herder, limits=Limits(requests_per_second=0)) as ask:
        yield made, ask


@given(config=_CONFIGS)
def test_odd_configs_are_refused_or_run_but_nothing_breaks(served, config):
    """Neither the API, nor the worker that is to run what it let pass."""
    worker, ask = served
    name = "odd"
    for method, path, body in (
        ("POST", "/connectors", {"name": name, "config": config}),
        ("PUT", f"/connectors/{name}/config", config),
        ("PATCH", f"/connectors/{name}/config", config),
        ("PUT", f"/connector-plugins/{config['connector.class']}/config/validate", config),
    ):
        answer = ask(method, path, body)
        assert answer.status in {200, 201, 400, 404}, (method, answer.body)
    stored = worker.storage.view.connectors.get(name)
    if stored is not None:
        with suppress(HeliographError):
            plan_connector(name, stored.config, worker.config)
        assert ask("DELETE", f"/connectors/{name}").status == 204
