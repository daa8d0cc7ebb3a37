"""Labs behind proxies, and a flow of theirs without Spark."""

from types import SimpleNamespace

import pytest
from mirroring import Mirroring
from proxy import Proxies, before

from heliograph.copy import links
from heliograph.copy.lease_state import LeaseState
from heliograph.lab import Lab
from heliograph.service.listening import Place
from heliograph.service.reports import ReportServer


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
def disturbances(monkeypatch):
    """Why partitions had to be resumed. Operators are told of those that last (see ``told``)."""
    texts = []
    disturb = LeaseState.disturb

    def listening(self, p, why, **options):
        texts.append(why)
        disturb(self, p, why, **options)

    monkeypatch.setattr(LeaseState, "disturb", listening)
    return texts


@pytest.fixture
def told():
    """Where leases report to, and what operators read of that: the reports of partitions."""
    reports = []
    server = ReportServer(lambda report: reports.extend(report.reports))
    yield server.listen(Place(None)), reports
    server.close()
