"""Labs behind proxies, and a flow of theirs without Spark."""

from types import SimpleNamespace

import pytest
from mirroring import Mirroring
from proxy import Proxies, before

from heliograph.copy import links
from heliograph.copy.desk import Desk
from heliograph.lab import Lab


@pytest.fixture(scope="session", autouse=True)
def close_links():
    """Leases leave their connections to the process, which here goes on to report leaks."""
    yield
    links.close()


@pytest.fixture(scope="session")
def behind_proxies(tmp_path_factory):
    """One broker each, a proxy before each: ``lab``, ``proxies``, and the ports ``a`` and ``b``."""
    with Proxies(2) as proxies:
        a, b = proxies.ports
        lab = Lab(tmp_path_factory.mktemp("proxied"), advertised={"A": [a], "B": [b]})
        lab.start()
        before(proxies, lab)
        yield SimpleNamespace(lab=lab, proxies=proxies, a=a, b=b)
        lab.stop(grace_s=0)


@pytest.fixture
def net(behind_proxies):
    """The proxies, without faults before and after the test."""
    behind_proxies.proxies.heal()
    yield behind_proxies
    behind_proxies.proxies.heal()


@pytest.fixture
def flow(net):
    """A new flow A->B through the proxies, with a signature and a ledger of its own."""
    made = Mirroring.of(net.lab)
    yield made
    made.close()


@pytest.fixture
def said(monkeypatch):
    """Why partitions had to wait, as an operator is told."""
    texts = []
    disturb = Desk.disturb

    def listening(self, p, why, **options):
        texts.append(why)
        disturb(self, p, why, **options)

    monkeypatch.setattr(Desk, "disturb", listening)
    return texts
