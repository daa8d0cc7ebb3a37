"""A Spark master that is not there is an error at once, and names the address."""

import socket
import time

import pytest

from heliograph.errors import StartError
from heliograph.spark.session import check_master, start


@pytest.fixture
def closed_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    return port


@pytest.mark.parametrize("form", ["spark://127.0.0.1:{}", "k8s://https://127.0.0.1:{}"])
def test_nobody_listens(closed_port, form, tmp_path):
    master = form.format(closed_port)
    began = time.monotonic()
    with pytest.raises(StartError) as caught:
        start(master, tmp_path)
    assert time.monotonic() - began < 60
    assert (caught.value.code, caught.value.exit_code) == ("spark.unreachable", 3)
    assert master in str(caught.value)


def test_one_of_several_masters_is_enough(closed_port):
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        check_master(f"spark://127.0.0.1:{closed_port},127.0.0.1:{port}")


@pytest.mark.parametrize("master", ["local[2]", "local", "local-cluster[1,1,1024]", "yarn"])
def test_masters_without_an_address_are_left_to_spark(master):
    check_master(master)
