"""The runbook has the words that appear on the screen.

Names of steps and facts are in backticks, what is said is in italics.
"""

from __future__ import annotations

import ast
import re
from pathlib import Path

from heliograph.failover import failback, failover

SOURCE = Path(failover.__file__).parents[1]
PAGE = (SOURCE.parents[1] / "docs" / "bad-day.md").read_text("utf-8")
#: Where the words of a failover and a failback are made.
MODULES = [
    *sorted((SOURCE / "failover").glob("*.py")), SOURCE / "cli" / "failover.py",
    SOURCE / "cli" / "failback.py", SOURCE / "control" / "groups" / "offset_sync.py",
]  # fmt: skip
#: What stands for a cluster or a flow: the runbook fails over from A to B.
FAILOVER = {"source": "A", "target": "B", "flow": "A->B", "reverse": "B->A", "alias": "B"}
#: Back it goes from B to A. The source of the failback's own flow is A, still.
FAILBACK = FAILOVER | {
    "alias": "A",
    "reverse.flow": "B->A",
    "back.flow": "B->A",
    "back.flow.target": "A",
}


def words(node, names):
    """A string of the source as it appears on the screen."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    made = []
    for part in node.values:
        if isinstance(part, ast.Constant):
            made.append(str(part.value))
        else:
            field = ast.unparse(part.value)
            made.append(names.get(field, names.get(field.rpartition(".")[2], "...")))
    return "".join(made)


def said(names):
    found = set()
    for path in MODULES:
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.JoinedStr) or (
                isinstance(node, ast.Constant) and isinstance(node.value, str)
            ):
                found.add(words(node, names))
    return found


def section(title):
    return PAGE.partition(f"## {title}\n")[2].partition("\n## ")[0]


def plain(text):
    """Without what is to be typed."""
    return re.sub(r"^    .*$", "", text, flags=re.MULTILINE)


def quoted(text):
    """What is in italics; not what is in backticks, nor bold."""
    text = re.sub(r"`[^`]*`", "", plain(text))
    return [" ".join(q.split()) for q in re.findall(r"(?<!\*)\*([^*]+)\*(?!\*)", text)]


def steps(text):
    """The first column of the table of steps."""
    table = text.partition("| on the screen |")[2].partition("\n\n")[0]
    return tuple(re.findall(r"^\| `(\w+)` \|", table, re.MULTILINE))


def missing(text, names):
    known = said(names)
    return [q for q in quoted(text) if not any(q in one for one in known)]


def test_a_failover_says_what_the_runbook_quotes():
    text = section("1. A is gone")
    assert len(quoted(text)) >= 12
    assert missing(text, FAILOVER) == []
    assert steps(text) == failover.STEPS


def test_a_failback_says_what_the_runbook_quotes():
    text = section("2. A is back")
    assert len(quoted(text)) >= 6
    assert missing(text, FAILBACK) == []
    assert steps(text) == failback.STEPS


def test_facts_have_the_names_that_the_runbook_quotes():
    source = (SOURCE / "cli" / "failover.py").read_text("utf-8")
    shown = set(re.findall(r'echo_fact\("([^"]+)"', source))
    before, _, after = section("1. A is gone").partition("| on the screen |")
    first = set(re.findall(r"`([a-z ]+)`", before.partition("First the screen")[2])) - {"y"}
    last = set(re.findall(r"`([A-Za-z ]+)`", after.partition("Wait for")[2].partition("\n\n")[0]))
    assert first == {"source", "topics", "at risk", "groups"} <= shown
    assert last == {"RTO", "RPO", "groups", "mirror", "connect to", "topics"} <= shown


def test_words_that_nobody_says_are_found():
    assert missing("it says *The failover to C is through.*", FAILOVER)
    assert not missing("it says *The failover to B is\nthrough.*, **bold**, `*=keep`", FAILOVER)
