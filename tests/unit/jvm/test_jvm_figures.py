"""The file that Java keeps for jstat: read from a real Java, and refused if it is damaged."""

from __future__ import annotations

import subprocess
import time

import pytest

from heliograph.jvm import figures
from heliograph.jvm.figures import jvm_figures, parse_figures
from heliograph.jvm.java import find_java


def test_a_running_java_tells_its_figures(tmp_path):
    source = tmp_path / "Waits.java"
    source.write_text(
        "class Waits { public static void main(String[] a) throws Exception {"
        " System.gc(); System.out.println(1); System.in.read(); } }"
    )
    java = subprocess.Popen(
        [str(find_java(17)), "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", str(source)],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    try:
        assert java.stdout is not None
        assert java.stdout.readline() == b"1\n"
        found = jvm_figures(java.pid)
    finally:
        java.communicate(b"\n", timeout=60)
    assert found is not None
    assert 100_000 < found.heap_bytes < 1 << 30
    assert 100_000 < found.metaspace_bytes < 1 << 30
    assert 2 < found.threads < 100
    assert len(found.collections) == 2
    assert sum(number for number, _ in found.collections.values()) >= 1
    assert all(0 <= seconds < time.monotonic() for _, seconds in found.collections.values())
    assert jvm_figures(java.pid) is None, "Java removes the file"


def test_no_such_process_and_damaged_files_are_no_figures(tmp_path, monkeypatch):
    monkeypatch.setattr(figures, "_FOLDERS", (str(tmp_path),))
    assert jvm_figures(17) is None
    folder = tmp_path / "hsperfdata_me"
    folder.mkdir()
    for damaged in (b"", b"\xca\xfe\xc0\xc0" + bytes(28), b"\xca\xfe\xc0\xc0\x01" + b"\xff" * 60):
        (folder / "17").write_bytes(damaged)
        assert jvm_figures(17) is None
        with pytest.raises(ValueError, match=r"entry|performance"):
            parse_figures(damaged)
