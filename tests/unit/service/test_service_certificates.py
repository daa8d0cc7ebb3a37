"""When certificates end: read from the stores that clients use, and again when they change."""

from __future__ import annotations

import os
import time

from certificates import Authority

from heliograph.service.certificates import CertificateWatch


def pem(path):
    return {"ssl.keystore.location": str(path), "ssl.keystore.type": "PEM"}


def test_certificates_are_known_until_their_file_changes(tmp_path):
    path = tmp_path / "client.pem"
    Authority("one").client_pem(path)
    settings = {"A": pem(path)}
    watch = CertificateWatch(settings.items)
    watch.look()
    [first] = watch.known()
    assert (first.owner, first.store) == ("A", "keystore")
    assert first.subject.startswith("CN=")
    assert time.time() < first.expires_at < time.time() + 3650 * 86_400
    Authority("two").client_pem(path)
    os.utime(path, ns=(0, 7))
    settings["B"] = pem(path)
    watch.look()
    assert {c.owner for c in watch.known()} == {"A", "B"}
    del settings["A"], settings["B"]
    watch.look()
    assert watch.known() == ()


def test_a_store_that_cannot_be_read_is_not_known(tmp_path):
    path = tmp_path / "damaged.pem"
    path.write_text("not a certificate")
    away = pem(tmp_path / "away.pem")
    watch = CertificateWatch(lambda: [("A", pem(path)), ("B", away), ("C", {})])
    watch.look()
    assert watch.known() == ()
