"""Every case of Connect's contract, sent to a real worker and to ours: the same answers.

The real worker's are in connect_answers.json, so that ours are compared without starting it.
"""

from __future__ import annotations

import subprocess
import sys
from fnmatch import fnmatchcase

import pytest
from connect_cases import ACCEPTED, STEPS, prepare
from connect_clients import CLIENTS
from connect_contract import (
    Api,
    Difference,
    Step,
    accepted,
    answers,
    definitions,
    differences,
    errors,
    recorded,
    shape,
    unordered,
    wrong,
)
from mirror_process import wait_for

from heliograph.lab.connect_worker import ConnectWorker


@pytest.mark.full
def test_recorded_answers_are_those_of_the_real_worker(module_lab_factory, tmp_path):
    lab = module_lab_factory()
    worker = ConnectWorker(lab["B"].client_properties(), tmp_path)
    worker.start()
    try:
        worker.wait_ready()
        prepare(lab["A"].bootstrap)
        api = Api(worker.url, lab["A"].bootstrap, lab["B"].bootstrap)
        found = answers(api, STEPS)
        # It is what their authors have tried them with.
        for client in CLIENTS:
            client(api)
    finally:
        worker.kill()
    assert wrong(recorded(), found, []) == []


@pytest.fixture(scope="module")
def our_api(lab, tmp_path_factory):
    """``heliograph connect`` with the worker file that the real one has."""
    folder = tmp_path_factory.mktemp("ours")
    described = ConnectWorker(lab["B"].client_properties(), folder, name="ours")
    command = [sys.executable, "-m", "heliograph", "connect", "-o", "plain"]
    out = folder / "ours.out"
    with out.open("wb") as log:
        process = subprocess.Popen(
            [*command, str(described.properties_path)], stdout=log, stderr=log
        )
    try:
        wait_for(lambda: described.health()[0] == 200 or process.poll() is not None, 120, "healthy")
        assert process.poll() is None, out.read_text()
        prepare(lab["A"].bootstrap)
        yield Api(described.url, lab["A"].bootstrap, lab["B"].bootstrap)
    finally:
        process.terminate()
        try:
            process.wait(60)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def test_our_answers_are_those_of_the_real_worker(our_api):
    found = answers(our_api, STEPS)
    assert wrong(recorded(), found, ACCEPTED) == []


@pytest.mark.parametrize("client", CLIENTS, ids=lambda client: client.__name__)
def test_clients_find_what_they_read(our_api, client):
    client(our_api)


def test_each_step_is_recorded_with_its_status():
    assert [step.name for step in STEPS] == list(recorded())
    assert {s.name: s.status for s in STEPS} == {k: v["status"] for k, v in recorded().items()}


def test_every_case_of_the_contract_has_a_step():
    assert {int(step.name.split()[0]) for step in STEPS} == set(range(1, 41))


def test_every_accepted_difference_has_a_step_and_a_reason():
    for steps, texts, reason in ACCEPTED:
        assert any(fnmatchcase(step.name, steps) for step in STEPS), steps
        assert texts
        assert reason


def test_differences_are_found_by_place():
    real = {"a": {"status": 200, "headers": {}, "body": {"x": [1, 2], "y": {}}}}
    assert differences(real, real) == []
    ours = {"a": {"status": 500, "headers": {}, "body": {"x": [1, 3], "z": None}}}
    assert differences(real, ours) == [
        Difference("a", "status", 200, 500),
        Difference("a", "body/x/1", 2, 3),
        Difference("a", "body/y", {}, "absent"),
        Difference("a", "body/z", "absent", None),
    ]


def test_a_step_that_was_not_run_differs():
    assert next(d.where for d in differences({"a": {"status": 204}}, {})) == "status"


def test_an_accepted_difference_is_not_wrong():
    real, ours = {"8 x": {"body": {"message": "a"}}}, {"8 x": {"body": {"message": "b"}}}
    row = ("8 *", "body/message: real 'a', *", "because")
    assert wrong(real, ours, [row]) == []
    assert wrong(real, ours, [("9 *", "*", "because")]) == ["8 x: body/message: real 'a', ours 'b'"]
    assert accepted(differences(real, ours)[0], [row]) == row


def test_shapes_keep_names_types_and_error_codes():
    assert shape({"error_code": 404, "message": "x"}) == {"error_code": 404, "message": "str"}
    assert shape([{"a": 1}, {"b": 2}]) == [{"a": "int"}]
    assert shape(None) is None


def test_order_counts_only_where_it_is_promised():
    assert unordered({"a": [{"b": 2}, {"b": 1}]}) == {"a": [{"b": 1}, {"b": 2}]}


def test_texts_of_definitions_do_not_count():
    one = {"name": "k", "type": "INT", "documentation": "long"}
    assert definitions([one]) == {"k": {"name": "k", "type": "INT", "place": 0}}


def test_only_errors_count_in_a_validation():
    value = {"definition": {}, "value": {"name": "k", "errors": ["bad"]}}
    good = {"definition": {}, "value": {"name": "g", "errors": []}}
    body = {"name": "x", "error_count": 1, "groups": [], "configs": [value, good]}
    assert errors(body)["configs"] == {"k": ["bad"]}


def test_addresses_do_not_count():
    api = Api("http://127.0.0.1:8083", "127.0.0.1:1", "127.0.0.1:2")
    assert api._encoded({"a": "{source} {target}"}) == b'{"a": "127.0.0.1:1 127.0.0.1:2"}'
    assert api._neutral("http://127.0.0.1:8083/connectors/c") == "http://{worker}/connectors/c"
    assert Step("1 x", "GET /").headers == {"Content-Type": "application/json"}
