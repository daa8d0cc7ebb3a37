"""What `heliograph offsets` reads from its options, and prints; tests/integration has the rest."""

from __future__ import annotations

import pytest
from click.testing import CliRunner

from heliograph.cli.offsets import iso_duration, iso_moment, offsets_command
from heliograph.cli.offsets_view import Shown, echo_export
from heliograph.control.groups.starts import GroupStart, Log, Start, Translated
from heliograph.model import Flow, TopicPartition

P = TopicPartition("A.t", 0)


@pytest.mark.parametrize(("text", "seconds"), [
    ("PT1H", 3600), ("P1DT12H", 129_600), ("PT1M30.5S", 90.5), ("pt0s", 0),
    ("P", None), ("PT", None), ("1h", None), ("-PT1H", None), ("PT1H2H", None), ("P1M", None),
])  # fmt: skip
def test_durations(text, seconds):
    if seconds is None:
        with pytest.raises(ValueError, match="no duration"):
            iso_duration(text)
    else:
        assert iso_duration(text) == seconds


@pytest.mark.parametrize(("text", "ms"), [
    ("2026-11-17T03:12:07.250", 1_794_885_127_250), ("2026-11-17T03:12:07.250Z", 1_794_885_127_250),
    ("2026-11-17T04:12:07.250+01:00", 1_794_885_127_250), ("yesterday", None),
])  # fmt: skip
def test_times_are_utc_unless_they_say_otherwise(text, ms):
    if ms is None:
        with pytest.raises(ValueError, match="no time"):
            iso_moment(text)
    else:
        assert iso_moment(text) == ms


FILE = (
    "clusters = A, B\nA.bootstrap.servers = a:1\nB.bootstrap.servers = b:1\nA->B.enabled = true\n"
)


@pytest.mark.parametrize(("options", "says"), [
    (["--to-latest", "--to-earliest"], "choose one place to start"),
    (["--margin", "PT1S"], "--margin goes with --since-last-heartbeat"),
    (["--execute", "--export"], "choose one"),
    (["--by-duration", "1h"], "'1h' is no duration such as PT1H"),
    (["--to-datetime", "noon"], "'noon' is no time such as"),
    (["--groups", "("], "does not compile"),
])  # fmt: skip
def test_arguments_that_are_refused(tmp_path, options, says):
    path = tmp_path / "mm2.properties"
    path.write_text(FILE)
    done = CliRunner().invoke(offsets_command, [str(path), *options])
    assert done.exit_code != 0
    assert says in done.output


def test_an_export_leaves_out_what_kafka_cannot_read_and_what_is_ahead(capsys):
    log = Log(0, 9)
    found = {
        g: GroupStart(g, "Empty", starts={P: Start(P, 4, log, committed)})
        for g, committed in (("=1+\x1b[1mx,", -1), ("two\nlines", -1), ("ahead", 6))
    }
    seen = Shown(Flow("A", "B"), Translated(), found, ["a note"], rewind=False)
    assert not echo_export(seen)
    said = capsys.readouterr()
    assert said.out == '"=1+\x1b[1mx,",A.t,0,4\n'
    assert said.err.splitlines() == [
        "group two\\nlines is left out: Kafka's CSV has no line ends in names",
        "note: a note", "note: left out, because it is ahead: 1 offset; --rewind has them",
    ]  # fmt: skip
