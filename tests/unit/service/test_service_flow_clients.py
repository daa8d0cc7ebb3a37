"""A flow's clients: one for each kind of settings, whoever asks."""

from __future__ import annotations

from heliograph.config import load
from heliograph.service.flow import QUICK_REQUEST_SECONDS, FlowRuntime


def test_jobs_share_clients_and_the_hurried_have_their_own(tmp_path):
    path = tmp_path / "mm2.properties"
    path.write_text(
        "clusters = A, B\n"
        "A.bootstrap.servers = a:1\n"
        "B.bootstrap.servers = b:1\n"
        "A->B.enabled = true\n"
        "B.admin.ssl.truststore.type = PEM\n"
    )
    [config] = [f for f in load(path).flows if f.enabled]
    runtime = FlowRuntime(config)
    one = runtime.client(config.target_admin)
    assert runtime.client(config.target_admin) is one
    assert runtime.client(config.target_client) is not one, "other credentials"
    assert runtime.client(config.source_admin) is runtime.client(config.source_client)
    quick = runtime.client(config.target_admin, QUICK_REQUEST_SECONDS)
    assert quick is not one
    assert quick.request_timeout == QUICK_REQUEST_SECONDS
    assert runtime.ledger is runtime.ledger
