"""What the dashboard asks beside the figures, and its own files."""

from __future__ import annotations

import time
from base64 import b64encode
from dataclasses import replace
from functools import partial
from itertools import pairwise

import pytest
from serving import serving
from test_rest_own import V1, Lab, Stream

from heliograph.rest import app, flow_stream
from heliograph.rest.credentials import hash_password, new_token
from heliograph.rest.dashboard_routes import dashboard_routes
from heliograph.rest.settings import Role
from heliograph.service.history import STEP_SECONDS
from heliograph.service.snapshot import EngineSnapshot, EngineState, MirrorSnapshot, to_json

SECRET = "open sesame"
PAGE = "<!doctype html><title>page</title>"


@pytest.fixture
def board(tmp_path, monkeypatch):
    """A server with a dashboard of two files, and a login."""
    folder = tmp_path / "dashboard"
    (folder / "js").mkdir(parents=True)
    (folder / "index.html").write_text(PAGE)
    (folder / "js" / "app.js").write_text("1")
    (folder / "notes.txt").write_text("not to be served")
    monkeypatch.setattr(app, "dashboard_routes", partial(dashboard_routes, folder))
    users, tokens = tmp_path / "users", tmp_path / "tokens"
    users.write_text(f"victor:viewer:{hash_password(SECRET)}\n")
    token, line = new_token("olga", Role.OPERATOR)
    tokens.write_text(line + "\n")
    lab = Lab()
    with serving(lab.herder, lab.mirrored, users_file=users, tokens_file=tokens) as ask:
        yield ask, {"Authorization": f"Bearer {token}"}


def test_the_page_is_for_anybody_and_runs_nothing_but_its_own_code(board):
    ask, known = board
    reply = ask.get("/dashboard/")
    assert (reply.status, reply.body.decode()) == (200, PAGE)
    assert reply.headers["Content-Type"] == "text/html; charset=utf-8"
    policy = reply.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "frame-ancestors 'none'" in policy
    assert "unsafe" not in policy
    assert "http" not in policy
    assert reply.headers["X-Content-Type-Options"] == "nosniff"
    code = ask.get("/dashboard/js/app.js")
    assert (code.status, code.headers["Content-Type"]) == (200, "text/javascript; charset=utf-8")
    same = ask.get("/dashboard/js/app.js", **{"If-None-Match": f'"x", W/{code.headers["ETag"]}'})
    assert (same.status, same.body) == (304, b"")
    for path in ("notes.txt", "js", "js/", "../routing.py", "%2e%2e/routing.py", "js/app.js/x"):
        # Whoever is unknown is not told what there is.
        assert ask.get(f"/dashboard/{path}").status in {400, 401, 404}
        assert ask.get(f"/dashboard/{path}", **known).status in {
            400,
            404,
        }


@pytest.mark.parametrize(
    ("accept", "page"),
    [("text/html,application/xhtml+xml,*/*;q=0.8", True), ("*/*", False),
     ("application/json", False), ("text/html;q=0.5,application/json", False), ("", False)],
)  # fmt: skip
def test_browsers_are_sent_to_the_page_and_others_get_connects_answer(board, accept, page):
    ask, known = board
    reply = ask.get("/", Accept=accept, **known)
    assert reply.status == (307 if page else 200)
    if page:
        assert reply.headers["Location"] == "dashboard/"
    else:
        assert reply.json["version"] == "4.3.1"
    assert ask.get("/dashboard").headers["Location"] == "dashboard/"


def test_without_its_files_there_is_no_page(tmp_path, monkeypatch):
    monkeypatch.setattr(app, "dashboard_routes", partial(dashboard_routes, tmp_path))
    lab = Lab()
    with serving(lab.herder, lab.mirrored) as ask:
        assert ask.get("/", Accept="text/html, */*;q=0.1").status == 200
        assert ask.get("/dashboard/").status == 404


def test_who_asks(board):
    ask, known = board
    login = b64encode(f"victor:{SECRET}".encode()).decode()
    viewer = ask.get(f"{V1}/me", Authorization=f"Basic {login}").json
    assert viewer | {"version": ""} == {
        "name": "victor", "role": "viewer", "changes": True, "version": "",
        "logins": ["basic", "bearer"],
    }  # fmt: skip
    operator = ask.get(f"{V1}/me", **known).json
    assert (operator["name"], operator["role"]) == ("olga", "operator")
    nobody = ask.get(f"{V1}/me")
    assert nobody.status == 401
    assert nobody.headers["WWW-Authenticate"]
    page = ask.get(f"{V1}/me", **{"X-Requested-With": "heliograph"})
    assert (page.status, page.headers["WWW-Authenticate"]) == (401, None)
    assert page.headers["X-Heliograph-Logins"] == "basic, bearer"


def test_a_page_that_was_just_given_is_not_for_who_is_unknown(board):
    ask, known = board
    path = f"{V1}/topics?limit=1"
    assert ask.get(path, **known).status == 200
    assert ask.get(path).status == 401
    assert ask.get(path, Host="evil.example").status in {400, 403}
    assert ask("DELETE", path, headers=known).status == 405


def test_history_is_thinned_out_and_peaks_stay():
    lab = Lab()
    now = time.time() // 120 * 120
    with serving(lab.herder, lab.mirrored) as ask:
        assert ask.get(f"{V1}/history").json == {"flows": {}}
        for n in range(240):
            lag = 1_000_000 if n == 100 else n
            flow = replace(lab.known.flows[0], lag_records=lag, records_per_second=float(n % 2))
            at = now - (240 - n) * STEP_SECONDS
            lab.history.sample(MirrorSnapshot(at, (flow, lab.known.flows[1])))
        whole = ask.get(f"{V1}/history?flow=A-%3EB&points=720").json["flows"]
        assert list(whole) == ["A->B"]
        assert (whole["A->B"]["step_seconds"], len(whole["A->B"]["points"])) == (5, 240)
        thin = ask.get(f"{V1}/history?points=100&seconds=3600").json["flows"]
        assert set(thin) == {"A->B", "B->A"}
        points = thin["A->B"]["points"]
        step = thin["A->B"]["step_seconds"]
        assert (step, len(points)) == (40, 30)
        assert max(p[1] for p in points) == 1_000_000
        assert {p[3] for p in points} == {0.5}
        assert all(second[0] - first[0] == step for first, second in pairwise(points))
        assert thin["B->A"]["points"][0][1:] == [None] * 5
        assert len(ask.get(f"{V1}/history?seconds=100").json["flows"]["A->B"]["points"]) <= 20
        assert ask.get(f"{V1}/history?flow=x").status == 404
        assert ask.get(f"{V1}/history?points=x").status == 400


def test_flows_as_a_stream_whenever_something_has_changed(monkeypatch):
    monkeypatch.setattr(flow_stream, "_PAUSE_SECONDS", 0.02)
    lab = Lab()
    with serving(lab.herder, lab.mirrored) as ask:
        first, second = (Stream(ask, path="/flows/stream") for _ in range(2))
        plain = ask.get(f"{V1}/flows").json
        for stream in (first, second):
            # Spark first, from the same look: who shows the flows knows both.
            assert stream.next()[1:] == ("engine", to_json(lab.known.engine))
            assert stream.next()[1:] == ("flows", plain)
        main, back = lab.known.flows
        gone = EngineSnapshot(EngineState.STARTING)
        lab.known = replace(lab.known, flows=(replace(main, lag_records=77), back), engine=gone)
        for stream in (first, second):
            assert stream.next()[2]["state"] == "starting"
            assert stream.next()[2][0]["lag_records"] == 77
        first.close()
    # With the server, the rest ends.
    assert second.next() is None
    second.close()
