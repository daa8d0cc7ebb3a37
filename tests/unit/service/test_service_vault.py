"""Secrets of the configuration file: tasks carry a name, and ask the driver for what is behind."""

from __future__ import annotations

import pickle

import pytest

from heliograph.config import KEYS
from heliograph.config.key import Scope, Type
from heliograph.model import ClientSettings
from heliograph.service.listening import Place
from heliograph.service.vault import Vault
from heliograph.wire import driver
from heliograph.wire.driver import unsealed
from heliograph.wire.errors import ConnectionFailed

PLANTED = "hunter2-planted"
SECRET_KEYS = [k.name for k in KEYS if k.scope is Scope.CLIENT and k.type is Type.PASSWORD]


@pytest.fixture(params=["a file", "TLS"])
def place(request, tmp_path_factory):
    return Place(tmp_path_factory.mktemp("v") if request.param == "a file" else None)


@pytest.fixture
def vault(monkeypatch):
    monkeypatch.setattr(driver, "_opened", {})
    made = Vault()
    yield made
    made.close()


def test_every_secret_stays_and_comes_when_asked_for(vault, place):
    assert len(SECRET_KEYS) >= 5
    properties = {"bootstrap.servers": "b:1", "ssl.truststore.location": "/t"}
    secret = {key: f"{PLANTED} {key}" for key in SECRET_KEYS}
    secret["sasl.oauthbearer.token.endpoint.url"] = f"https://idp/t?key={PLANTED}"
    secret["ssl.truststore.certificates"] = f"-----BEGIN PRIVATE KEY-----{PLANTED}"
    secret["sasl.jaas.config"] = f'X required password="{PLANTED}" user="${{file:/a:b}}";'
    settings = ClientSettings("A", properties | secret)
    sealed = vault.seal(settings, place)
    assert PLANTED.encode() not in pickle.dumps(sealed)
    assert PLANTED not in repr(sealed) + repr(settings)
    assert sealed.properties == properties
    assert unsealed(pickle.loads(pickle.dumps(sealed))) == settings
    # The same secrets have one name, so that nobody asks twice.
    assert vault.seal(settings, place) == sealed


def test_references_travel_as_they_are(vault, place):
    settings = ClientSettings(
        "A", {"ssl.key.password": "${file:/etc/secrets/x:y}", "client.id": "c"}
    )
    assert vault.seal(settings, place) is settings
    assert unsealed(settings) is settings


def test_a_driver_that_is_gone_or_does_not_know_the_name(vault, place):
    sealed = vault.seal(ClientSettings("A", {"ssl.key.password": "p"}), place)
    vault._kept.clear()
    with pytest.raises(ConnectionFailed, match="does not give the credentials of cluster A"):
        unsealed(sealed)
    vault.close()
    with pytest.raises(ConnectionFailed, match="does not give the credentials of cluster A"):
        unsealed(sealed)
