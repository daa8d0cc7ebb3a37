"""The live channel: executors tell, the driver hears; nobody waits for anybody."""

from __future__ import annotations

import shutil
import socket
import ssl
import stat
import threading
import time
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.copy.lease_report import LeaseReport, PartitionPosition, _Line
from heliograph.model import (
    DriverAddress,
    PartitionEvent,
    PartitionReport,
    PartitionState,
    TopicPartition,
)
from heliograph.service import listening
from heliograph.service.listening import Place
from heliograph.service.reports import ReportServer

PLACE = Place(None)

P = TopicPartition("orders", 3)


def lease_report(n=1, text="gone"):
    report = PartitionReport("A->B", P, PartitionState.FAILED, 1.25, text, "source.x", 7.5)
    event = PartitionEvent("A->B", P, "source.x", text, 3, 9, 1.1)
    return LeaseReport("A->B", n, (report,), (event,), (PartitionPosition(P, 7, 6),), all_told=True)


def wait_for(condition, seconds=60.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)


@pytest.fixture
def heard():
    return []


@pytest.fixture(params=["a file", "TLS"])
def place(request, tmp_path_factory):
    return Place(tmp_path_factory.mktemp("s") if request.param == "a file" else None)


@pytest.fixture
def address(heard, place):
    server = ReportServer(heard.append)
    yield server.listen(place)
    server.close()


def call(address, *pieces):
    if address.path:
        made = socket.socket(socket.AF_UNIX)
        made.connect(address.path)
    else:
        plain = socket.create_connection((address.host, address.port))
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname = False
        context.load_verify_locations(cadata=address.certificate)
        made = context.wrap_socket(plain)
    for piece in pieces:
        made.sendall(piece)
        time.sleep(0.02)
    return made


def is_cut_off(caller, seconds=60.0):
    with caller:
        caller.settimeout(seconds)
        try:
            return caller.recv(1) == b""
        except ConnectionResetError:
            return True


def line(n=1):
    return lease_report(n).encode().encode() + b"\n"


texts = st.text(max_size=20)
times = st.floats(0, 1e10)
partitions = st.builds(TopicPartition, texts, st.integers(0, 1 << 31))
offsets = st.integers(-1, 1 << 62)
reports = st.builds(
    PartitionReport, texts, partitions, st.sampled_from(PartitionState), times, texts, texts, times
)
events = st.builds(PartitionEvent, texts, partitions, texts, texts, offsets, offsets, times)


@given(
    st.builds(
        LeaseReport,
        texts,
        st.integers(0, 1 << 40),
        st.lists(reports, max_size=3).map(tuple),
        st.lists(events, max_size=3).map(tuple),
        st.lists(st.builds(PartitionPosition, partitions, offsets, offsets), max_size=3).map(tuple),
        st.booleans(),
    )
)
def test_tidings_survive_the_wire(told):
    encoded = told.encode()
    assert "\n" not in encoded
    assert LeaseReport.decode(encoded) == told


@given(st.one_of(st.binary(max_size=60), st.sampled_from([
    b"{}", b"[]", b"null", b'{"flow":1}', b'{"flow":"x","serial":1,"reports":[3],"events":[],'
    b'"positions":[],"all_told":1}', b'{"flow":"x","serial":"y","reports":[],"events":[],'
    b'"positions":[],"all_told":1}', b'{"flow":"x","serial":1,"reports":[{"state":"odd"}],'
    b'"events":[],"positions":[],"all_told":1}', b"[" * 100_000,
])))  # fmt: skip
def test_anything_else_is_a_value_error(garbage):
    with pytest.raises(ValueError):
        LeaseReport.decode(garbage)


def test_a_line_is_heard_also_in_pieces(address, heard):
    token = address.token.encode() + b"\n"
    whole = line(1) + line(2)
    caller = call(address, token[:5], token[5:] + whole[:7], whole[7:90], whole[90:])
    wait_for(lambda: len(heard) == 2)
    assert heard == [lease_report(1), lease_report(2)]
    caller.close()


def test_who_has_no_token_is_not_heard(address, heard):
    assert is_cut_off(call(address, b"guess\n" + line()))
    assert is_cut_off(call(address, line()))
    assert is_cut_off(call(address, b"x" * 1000))
    assert heard == []


def test_who_says_nothing_is_cut_off(address, heard, monkeypatch):
    monkeypatch.setattr("heliograph.service.listening._TOKEN_SECONDS", 0.2)
    assert is_cut_off(call(address))


def test_garbage_ends_a_call_and_no_other(address, heard):
    token = address.token.encode() + b"\n"
    good = call(address, token)
    bad = call(address, token, b"{garbage\n")
    assert is_cut_off(bad)
    good.sendall(line(5))
    wait_for(lambda: heard == [lease_report(5)])
    good.close()


def test_a_line_without_an_end_is_not_kept_for_ever(address, heard, monkeypatch):
    monkeypatch.setattr(ReportServer, "line_most_bytes", 1000)
    assert is_cut_off(call(address, address.token.encode() + b"\n", b"x" * 2000))


def test_half_a_line_at_the_end_is_not_heard(address, heard):
    caller = call(address, address.token.encode() + b"\n" + line(1) + line(2)[:50])
    wait_for(lambda: heard)
    caller.close()
    other = call(address, address.token.encode() + b"\n" + line(3))
    wait_for(lambda: len(heard) == 2)
    assert heard == [lease_report(1), lease_report(3)]
    other.close()


def test_a_listener_that_fails_does_not_end_the_channel():
    heard = []

    def hear(told):
        heard.append(told)
        raise RuntimeError("a bug")

    server = ReportServer(hear)
    address = server.listen(PLACE)
    caller = call(address, address.token.encode() + b"\n" + line(1) + line(2))
    wait_for(lambda: len(heard) == 2)
    caller.close()
    server.close()


def test_many_who_say_nothing_neither_take_all_descriptors_nor_keep_others_out(
    address, heard, monkeypatch
):
    # So that it is their number that ends them.
    monkeypatch.setattr(listening, "_TOKEN_SECONDS", 600.0)
    strangers = []
    for _ in range(300):
        made = socket.socket(socket.AF_UNIX if address.path else socket.AF_INET)
        made.connect(address.path or (address.host, address.port))
        strangers.append(made)
    caller = call(address, address.token.encode() + b"\n" + line(1))
    wait_for(lambda: heard)
    assert sum(is_open(one) for one in strangers) <= 32
    for one in (caller, *strangers):
        one.close()


def is_open(caller):
    caller.setblocking(False)
    try:
        return caller.recv(1) != b""
    except BlockingIOError:
        return True
    except OSError:
        return False


def test_nobody_else_can_reach_a_socket_file(tmp_path):
    server = ReportServer(print)
    path = Path(server.listen(Place(tmp_path)).path)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    server.close()
    assert not path.exists()


def test_f08_a_socket_file_that_was_removed_comes_back_in_the_same_place(
    heard, tmp_path, monkeypatch
):
    monkeypatch.setattr(listening, "IDLE_SECONDS", 0.05)
    monkeypatch.setattr(listening, "_TOKEN_SECONDS", 60.0)
    folder = tmp_path / "s"
    folder.mkdir(0o700)
    server = ReportServer(heard.append)
    address = server.listen(Place(folder))
    shutil.rmtree(folder)
    wait_for(Path(address.path).exists)
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700

    def reachable():
        # The file is there a moment before anybody listens.
        with socket.socket(socket.AF_UNIX) as made:
            return made.connect_ex(address.path) == 0

    wait_for(reachable)
    caller = call(address, address.token.encode() + b"\n" + line(1))
    wait_for(lambda: heard)
    caller.close()
    assert heard == [lease_report(1)]
    assert stat.S_IMODE(Path(address.path).stat().st_mode) == 0o600
    server.close()
    assert not Path(address.path).exists()


def test_where_a_path_is_too_long_there_is_a_port(tmp_path):
    deep = tmp_path / ("x" * 120)
    deep.mkdir()
    server = ReportServer(print)
    assert server.listen(Place(deep)).certificate
    server.close()


def test_another_driver_with_the_same_port_is_not_told_anything(heard):
    """Whoever takes over the port has another certificate."""
    server, other = ReportServer(heard.append), ReportServer(heard.append)
    expected, address = server.listen(Place(None)), other.listen(Place(None))
    teller = _Line(replace(expected, port=address.port))
    teller.say(lease_report())
    wait_for(lambda: teller.flush() or teller._again_at)
    assert heard == []
    teller.close()
    server.close()
    other.close()


def test_a_token_may_come_together_with_half_a_report(heard):
    server = ReportServer(heard.append)
    here, there = socket.socketpair()
    caller = listening.Caller(there, time.monotonic())
    said = lease_report(1, "x" * 5000).encode().encode() + b"\n"
    with here, there:
        here.sendall(server._token.encode() + b"\n" + said[:2000])
        assert server._read(caller)
        here.sendall(said[2000:])
        assert server._read(caller)
    assert [report.serial for report in heard] == [1]


# -- the executor's end --------------------------------------------------------------------------


def test_what_is_said_is_heard(address, heard, monkeypatch):
    # On a loaded machine our own token may take longer than a stranger's is waited for.
    monkeypatch.setattr(listening, "_TOKEN_SECONDS", 60.0)
    teller = _Line(address)
    for n in range(100):
        teller.say(lease_report(n))
        teller.flush()
    wait_for(lambda: teller.flush() or len(heard) == 100)
    assert [t.serial for t in heard] == list(range(100))
    teller.close()


def test_nobody_there_costs_no_time_and_no_memory():
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    teller = _Line(DriverAddress("t", host="127.0.0.1", port=port))
    started = time.monotonic()
    for n in range(1000):
        teller.say(lease_report(n, "x" * 5000))
        teller.flush()
    assert time.monotonic() - started < 60
    assert len(teller._unsent) <= 1 << 20
    teller.close()


def test_an_address_without_a_route_does_not_block():
    teller = _Line(DriverAddress("t", host="192.0.2.1", port=9))
    teller.say(lease_report())
    started = time.monotonic()
    teller.flush()
    teller.flush()
    teller.close()
    assert time.monotonic() - started < 60


def test_a_driver_that_reads_nothing_does_not_block(heard):
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        teller = _Line(DriverAddress("t", host="127.0.0.1", port=deaf.getsockname()[1]))
        started = time.monotonic()
        for n in range(2000):
            teller.say(lease_report(n, "x" * 10_000))
            teller.flush()
        assert time.monotonic() - started < 60
        assert len(teller._unsent) <= (1 << 20) + 10
        teller.close()


def test_it_connects_again_when_the_driver_hung_up(heard, monkeypatch):
    monkeypatch.setattr("heliograph.copy.lease_report._CONNECT_AGAIN_SECONDS", 0.05)
    server = ReportServer(heard.append)
    address = server.listen(PLACE)
    teller = _Line(address)
    teller.say(lease_report(1))
    wait_for(lambda: teller.flush() or heard)
    [caller] = server._callers.values()
    caller.socket.shutdown(socket.SHUT_RDWR)

    def go_on():
        teller.say(lease_report(2))
        teller.flush()
        return any(t.serial == 2 for t in heard)

    wait_for(go_on)
    teller.close()
    server.close()


def test_holders_of_leases_are_told_to_end_and_waited_for(heard):
    server = ReportServer(heard.append)
    line = _Line(server.listen(PLACE))
    assert not line.says_end(), "not connected yet"
    line.say(lease_report())
    wait_for(lambda: (line.flush(), heard)[1])
    assert not line.says_end()
    ending = threading.Thread(target=server.end_leases, args=("A->B", 60.0))
    ending.start()
    wait_for(line.says_end)
    assert ending.is_alive(), "it waits for the holder"
    line.close()
    ending.join(60)
    assert not ending.is_alive()
    server.close()


def test_who_only_greets_is_waited_for_and_says_nothing(heard):
    server = ReportServer(heard.append)
    line = _Line(server.listen(PLACE))
    line.say(LeaseReport("A->B", 1))
    wait_for(lambda: (line.flush(), server.are_held("A->B"))[1])
    assert not server.are_held("B->A")
    assert not server.end_leases("A->B", 0.05), "it is still there"
    wait_for(line.says_end)
    line.close()
    wait_for(lambda: not server.are_held("A->B"))
    assert heard == []
    server.close()
