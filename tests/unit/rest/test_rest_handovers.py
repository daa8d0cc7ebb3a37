"""Failover over HTTP: who may look and who may do it, what is refused, and what is told of it."""

from __future__ import annotations

import json
from contextlib import contextmanager
from typing import Any

import pytest
from jsonschema_rs import ValidationError, validate
from serving import ScriptedHerder, serving
from stored import FileMirror
from synthetic_failover import GROUPS, IN_USE, SAID
from test_rest_own import V1

from heliograph.errors import StartError
from heliograph.failover.failover import STEPS
from heliograph.rest import schemas
from heliograph.rest.credentials import new_token
from heliograph.rest.own_routes import Mirrored
from heliograph.rest.settings import Limits, Role
from heliograph.service import handovers
from heliograph.service.events import HandoverEvent, level_of, line_of

FLOW = "A->B"
PATH = f"{V1}/flows/A-%3EB"
SURE = {"confirm": FLOW}


class Api:
    """One mirror, and a caller of each role."""

    def __init__(self, mirror, ask, tokens):
        self.mirror = mirror
        self.stage = mirror.stage
        self._ask = ask
        self._tokens = tokens

    def get(self, what, role="viewer", flow=PATH):
        return self._ask("GET", f"{flow}/{what}", headers=self._login(role))

    def fail_over(self, body, role="admin", flow=PATH):
        return self._ask("POST", f"{flow}/failover", body, self._login(role))

    def _login(self, role):
        return {"Authorization": f"Bearer {self._tokens[role]}"}

    def handover(self):
        """What is known of the last one, as the document describes it."""
        found = self.get("handover").json
        validate(schemas.HANDOVER, found)
        return found

    def ended(self):
        """The same, as soon as nothing runs."""
        while (found := self.handover())["run"]["ended"] is None:
            pass
        return found

    def events(self):
        published = self.mirror.events.history()
        return [p.event for p in published if isinstance(p.event, HandoverEvent)]


@contextmanager
def serve(tmp_path, mirror: Any, *, offered=True, changes=True):
    tokens, lines = {}, []
    for role in Role:
        tokens[role.name.lower()], line = new_token(role.name.lower(), role)
        lines.append(line)
    file = tmp_path / "tokens"
    file.write_text("\n".join(lines))
    herder = ScriptedHerder()
    herder.changeable = changes
    mirrored = Mirrored(
        mirror.snapshot, mirror.events, mirror.supervisor, mirror.history,
        mirror.handovers if offered else None,
    )  # fmt: skip
    limits = Limits(requests_per_second=0)
    with serving(herder, mirrored, tokens_file=file, limits=limits) as ask:
        yield Api(mirror, ask, tokens)


@pytest.fixture
def api(tmp_path):
    mirror = FileMirror()
    with serve(tmp_path, mirror) as made:
        yield made
        mirror.stage.go.set()


def test_an_operator_sees_the_plan_and_a_viewer_does_not(api):
    refused = api.get("failover", "viewer")
    assert refused.status == 403
    assert "needs the role operator" in refused.message
    for role in ("operator", "admin"):
        found = api.get("failover", role).json
        validate(schemas.FAILOVER_PLAN, found)
    assert (found["flow"], found["partitions"], found["refusals"]) == (FLOW, 84, [])
    assert found["at_risk"]["records"] == 502
    reasons = {group["group"]: group["reason"] for group in found["groups"]}
    assert reasons == GROUPS
    # Both have asked within seconds: the clusters were looked at once.
    assert api.stage.looks == 1


def test_what_speaks_against_it_is_in_the_plan(api):
    api.stage.healthy = api.stage.unfit = True
    found = api.get("failover", "operator").json
    codes = [refusal["code"] for refusal in found["refusals"]]
    assert codes == ["failover.source-healthy", "failover.target-unfit"]
    assert found["refusals"][0]["hint"].startswith("'heliograph switchover'")


def test_only_an_admin_who_names_the_flow_fails_it_over(api):
    for role in ("viewer", "operator"):
        reply = api.fail_over(SURE, role)
        assert reply.status == 403
        assert "needs the role admin" in reply.message
    wrong = [
        None, {}, [], {"confirm": "B->A"}, {"confirm": " A->B"}, {"confirm": True}, b"{", b"NaN",
        SURE | {"forced": True}, SURE | {"force": "yes"}, SURE | {"max_rpo": 5},
        SURE | {"max_rpo": {"records": 1.5}}, SURE | {"max_rpo": {"records": True}},
        SURE | {"max_rpo": {"seconds": -1}}, SURE | {"max_rpo": {"rows": 1}},
        b'{"confirm": "A->B", "max_rpo": {"seconds": 1e999}}', b"[" * 100_000, b"\xff\xfe\xfd",
    ]  # fmt: skip
    for body in wrong:
        if isinstance(body, bytes):
            reply = api._ask(
                "POST", f"{PATH}/failover", body,
                {**api._login("admin"), "Content-Type": "application/json"},
            )  # fmt: skip
        else:
            reply = api.fail_over(body)
        assert reply.status == 400, (body, reply.body)
        assert reply.message
    assert api.stage.wishes == []
    assert api.handover()["run"] is None


def test_a_failover_is_followed_step_by_step_and_its_report_is_kept(api):
    api.stage.waits_before = "stop"
    begun = api.fail_over(SURE | {"max_rpo": {"records": 1_000, "seconds": 30.5}})
    assert begun.status == 202, begun.body
    validate(schemas.FAILOVER_BEGUN, begun.json)
    assert begun.json["run"]["ended"] is None
    wish = api.stage.wishes[0]
    assert (wish.max_records, wish.max_seconds, wish.force) == (1_000, 30.5, False)
    assert wish.by.startswith("admin by REST of ")
    # A second one meanwhile.
    again = api.fail_over(SURE)
    assert (again.status, "being carried out already" in again.message) == (409, True)
    while "drain" not in ((found := api.handover())["handover"] or {"steps": ()})["steps"]:
        pass
    assert found["steps"] == list(STEPS)
    assert found["handover"]["ended"] is None
    api.stage.go.set()
    found = api.ended()
    assert found["handover"]["steps"] == list(STEPS)
    assert found["handover"]["ended"] is not None
    run = found["run"]
    assert run["error"] is None
    done = {p["step"]: p["text"] for p in run["progress"] if p["phase"] == "done"}
    assert done == {step: said for step, (_, said) in SAID.items()}
    left = {g["group"]: g["reason"] for g in run["report"]["groups"] if not g["moved"]}
    assert left == {"fraud-detection": IN_USE}
    # And it is told as it goes.
    told = [(event.step, event.phase) for event in api.events()]
    assert told[:3] == [("announce", "begun"), ("announce", "done"), ("drain", "begun")]
    assert told[-1] == ("end", "done")
    last = api.events()[-1]
    assert line_of(last).startswith("A->B [flow.handover]: the failover that admin by REST of ")
    assert line_of(api.events()[1]) == "A->B [flow.handover]: announce done"
    assert "1 group not moved" in last.text
    page = api._ask("GET", f"{V1}/events?limit=1000", headers=api._login("viewer")).json
    kinds = {event["kind"] for event in page["events"]}
    assert "handover" in kinds


def test_a_refusal_is_answered_at_once_and_force_is_passed_on(api):
    api.stage.healthy = True
    refused = api.fail_over(SURE)
    assert refused.status == 409
    assert "nothing has to be lost. 'heliograph switchover'" in refused.message
    assert api.handover()["run"]["error"]["refused"] is True
    assert api.handover()["handover"] is None
    assert api.fail_over(SURE | {"force": True}).status == 202
    assert api.ended()["run"]["error"] is None


def test_one_that_breaks_says_in_which_step_and_can_be_repeated(api):
    api.stage.breaks_in = "stop"
    assert api.fail_over(SURE).status == 202
    run = api.ended()["run"]
    assert run["error"] == {
        "code": "handover.mirror-lives", "message": "a mirror still copies",
        "hint": "stop that process", "refused": False,
    }  # fmt: skip
    assert (run["progress"][-1]["step"], run["progress"][-1]["phase"]) == ("stop", "failed")
    assert level_of(api.events()[-1]) > level_of(api.events()[0])
    assert api.handover()["handover"]["steps"] == ["announce", "drain"]
    api.stage.breaks_in = ""
    assert api.fail_over(SURE).status == 202
    found = api.ended()
    assert found["run"]["error"] is None
    assert found["handover"]["steps"] == list(STEPS)


def test_rehearsals_and_what_was_done_elsewhere_are_shown(api):
    api.stage.rehearsed(FLOW)
    found = api.handover()
    assert [r["kind"] for r in found["rehearsals"]] == ["drill", "drill", "failover", "drill"]
    assert found["rehearsals"][3]["rto_seconds"] is None
    assert (found["run"], found["handover"], found["unread"]) == (None, None, "")


def test_a_flow_that_is_not_there(api):
    for reply in (
        api.get("failover", "admin", f"{V1}/flows/X"), api.get("handover", flow=f"{V1}/flows/X"),
        api.fail_over({"confirm": "X"}, flow=f"{V1}/flows/X"),
    ):  # fmt: skip
        assert (reply.status, reply.message) == (404, "Flow X not found")


def test_clusters_that_are_away_are_named(tmp_path, monkeypatch):
    """The target of this one is nowhere; both answers come all the same."""
    mirror = FileMirror()
    gone = StartError("cluster.unreachable", "cluster B does not answer", "check its brokers")

    def fail(*_):
        raise gone

    monkeypatch.setattr(mirror.stage, "_make", fail)
    monkeypatch.setattr(
        mirror, "handovers",
        handovers.FlowHandovers(mirror._flows.__getitem__, mirror.events, make=fail),
    )  # fmt: skip
    with serve(tmp_path, mirror) as api:
        plan = api.get("failover", "operator")
        assert (plan.status, plan.message) == (
            503, "cluster B does not answer. Check its brokers",
        )  # fmt: skip
        found = api.handover()
        assert found["handover"] is None
        assert found["unread"]


def test_is_refused_where_nothing_may_be_changed(tmp_path):
    with serve(tmp_path, FileMirror(), changes=False) as api:
        reply = api.fail_over(SURE)
        assert reply.status == 403
        assert "heliograph.rest.changes" in reply.message
        assert api.get("failover", "operator").status == 200


def test_a_connect_worker_says_that_it_is_not_offered(tmp_path):
    with serve(tmp_path, FileMirror(), offered=False) as api:
        for reply in (api.get("failover", "admin"), api.get("handover"), api.fail_over(SURE)):
            assert reply.status == 501
            assert "'heliograph failover FILE' does" in reply.message


def test_bodies_are_as_the_document_describes():
    validate(schemas.FAILOVER, SURE | {"max_rpo": {"records": 1}, "force": True})
    with pytest.raises(ValidationError):
        validate(schemas.FAILOVER, json.loads('{"force": true}'))
