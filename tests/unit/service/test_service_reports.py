"""The live channel: executors tell, the driver hears; nobody waits for anybody."""

from __future__ import annotations

import socket
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.copy.telling import Stand, Tidings, _Line
from heliograph.model import (
    PartitionEvent,
    PartitionReport,
    PartitionState,
    ReportAddress,
    TopicPartition,
)
from heliograph.service.reports import ReportServer

P = TopicPartition("orders", 3)


def tidings(n=1, text="gone"):
    report = PartitionReport("A->B", P, PartitionState.FAILED, 1.25, text, "source.x", 7.5)
    event = PartitionEvent("A->B", P, "source.x", text, 3, 9, 1.1)
    return Tidings("A->B", n, (report,), (event,), (Stand(P, 7, 6),), all_told=True)


def wait_for(condition, seconds=5.0):
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "did not happen in time"
        time.sleep(0.01)


@pytest.fixture
def heard():
    return []


@pytest.fixture
def address(heard):
    server = ReportServer(heard.append)
    yield server.listen("127.0.0.1")
    server.close()


def call(address, *pieces):
    made = socket.create_connection((address.host, address.port))
    for piece in pieces:
        made.sendall(piece)
        time.sleep(0.02)
    return made


def is_cut_off(caller, seconds=5.0):
    with caller:
        caller.settimeout(seconds)
        try:
            return caller.recv(1) == b""
        except ConnectionResetError:
            return True


def line(n=1):
    return tidings(n).encode().encode() + b"\n"


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
        Tidings,
        texts,
        st.integers(0, 1 << 40),
        st.lists(reports, max_size=3).map(tuple),
        st.lists(events, max_size=3).map(tuple),
        st.lists(st.builds(Stand, partitions, offsets, offsets), max_size=3).map(tuple),
        st.booleans(),
    )
)
def test_tidings_survive_the_wire(told):
    encoded = told.encode()
    assert "\n" not in encoded
    assert Tidings.decode(encoded) == told


@given(st.one_of(st.binary(max_size=60), st.sampled_from([
    b"{}", b"[]", b"null", b'{"flow":1}', b'{"flow":"x","serial":1,"reports":[3],"events":[],'
    b'"positions":[],"all_told":1}', b'{"flow":"x","serial":"y","reports":[],"events":[],'
    b'"positions":[],"all_told":1}', b'{"flow":"x","serial":1,"reports":[{"state":"odd"}],'
    b'"events":[],"positions":[],"all_told":1}', b"[" * 100_000,
])))  # fmt: skip
def test_anything_else_is_a_value_error(garbage):
    with pytest.raises(ValueError):
        Tidings.decode(garbage)


def test_a_line_is_heard_also_in_pieces(address, heard):
    token = address.token.encode() + b"\n"
    whole = line(1) + line(2)
    caller = call(address, token[:5], token[5:] + whole[:7], whole[7:90], whole[90:])
    wait_for(lambda: len(heard) == 2)
    assert heard == [tidings(1), tidings(2)]
    caller.close()


def test_who_has_no_token_is_not_heard(address, heard):
    assert is_cut_off(call(address, b"guess\n" + line()))
    assert is_cut_off(call(address, line()))
    assert is_cut_off(call(address, b"x" * 1000))
    assert heard == []


def test_who_says_nothing_is_cut_off(address, heard, monkeypatch):
    monkeypatch.setattr("heliograph.service.reports._TOKEN_SECONDS", 0.2)
    assert is_cut_off(call(address))


def test_garbage_ends_a_call_and_no_other(address, heard):
    token = address.token.encode() + b"\n"
    good = call(address, token)
    bad = call(address, token, b"{garbage\n", b"")
    assert is_cut_off(bad)
    good.sendall(line(5))
    wait_for(lambda: heard == [tidings(5)])
    good.close()


def test_a_line_without_an_end_is_not_kept_for_ever(address, heard, monkeypatch):
    monkeypatch.setattr("heliograph.service.reports._LINE_MOST_BYTES", 1000)
    assert is_cut_off(call(address, address.token.encode() + b"\n", b"x" * 2000))


def test_half_a_line_at_the_end_is_not_heard(address, heard):
    caller = call(address, address.token.encode() + b"\n" + line(1) + line(2)[:50])
    wait_for(lambda: heard)
    caller.close()
    other = call(address, address.token.encode() + b"\n" + line(3))
    wait_for(lambda: len(heard) == 2)
    assert heard == [tidings(1), tidings(3)]
    other.close()


def test_a_listener_that_fails_does_not_end_the_channel():
    heard = []

    def hear(told):
        heard.append(told)
        raise RuntimeError("a bug")

    server = ReportServer(hear)
    address = server.listen("127.0.0.1")
    caller = call(address, address.token.encode() + b"\n" + line(1) + line(2))
    wait_for(lambda: len(heard) == 2)
    caller.close()
    server.close()


def test_an_address_that_cannot_be_listened_on_is_done_without(caplog):
    server = ReportServer(print)
    assert server.listen("192.0.2.1") is None
    server.close()
    assert "no live reports: cannot listen on 192.0.2.1" in caplog.text


# -- the executor's end --------------------------------------------------------------------------


def test_what_is_said_is_heard(address, heard):
    teller = _Line(address)
    for n in range(100):
        teller.say(tidings(n))
        teller.flush()
    wait_for(lambda: teller.flush() or len(heard) == 100)
    assert [t.serial for t in heard] == list(range(100))
    teller.close()


def test_nobody_there_costs_no_time_and_no_memory():
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    teller = _Line(ReportAddress("127.0.0.1", port, "t"))
    started = time.monotonic()
    for n in range(1000):
        teller.say(tidings(n, "x" * 5000))
        teller.flush()
    assert time.monotonic() - started < 2
    assert len(teller._unsent) <= 1 << 20
    teller.close()


def test_an_address_without_a_route_does_not_block():
    teller = _Line(ReportAddress("192.0.2.1", 9, "t"))
    teller.say(tidings())
    started = time.monotonic()
    teller.flush()
    teller.flush()
    teller.close()
    assert time.monotonic() - started < 0.5


def test_a_driver_that_reads_nothing_does_not_block(heard):
    with socket.create_server(("127.0.0.1", 0)) as deaf:
        teller = _Line(ReportAddress("127.0.0.1", deaf.getsockname()[1], "t"))
        started = time.monotonic()
        for n in range(2000):
            teller.say(tidings(n, "x" * 10_000))
            teller.flush()
        assert time.monotonic() - started < 5
        assert len(teller._unsent) <= (1 << 20) + 10
        teller.close()


def test_it_connects_again_when_the_driver_hung_up(heard, monkeypatch):
    monkeypatch.setattr("heliograph.copy.telling._CONNECT_AGAIN_SECONDS", 0.05)
    server = ReportServer(heard.append)
    address = server.listen("127.0.0.1")
    teller = _Line(address)
    teller.say(tidings(1))
    teller.flush()
    wait_for(lambda: heard)
    [caller] = server._callers.values()
    caller.socket.shutdown(socket.SHUT_RDWR)

    def go_on():
        teller.say(tidings(2))
        teller.flush()
        return any(t.serial == 2 for t in heard)

    wait_for(go_on)
    teller.close()
    server.close()
