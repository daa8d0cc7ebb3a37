import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.config.properties import dump, parse
from heliograph.errors import ConfigError

_text = st.text(st.characters(exclude_categories=["Cs"]))


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1", {"a": "1"}),
        ("a : 1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("a\t=\t1 ", {"a": "1 "}),
        ("a==1", {"a": "=1"}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("=b", {"": "b"}),
        ("# c\n ! d\n\n  a=1", {"a": "1"}),
        ("a=1\\\n   ,2\\\n\t,3", {"a": "1,2,3"}),
        ("a=1\\\n# no comment", {"a": "1# no comment"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\", {"a": "1"}),
        ("a\\:b\\=c\\ d=1", {"a:b=c d": "1"}),
        (r"a=\t\n\r\f\\\q", {"a": "\t\n\r\f\\q"}),
        (r"a=\u00e9\u20AC", {"a": "é€"}),
        (r"a=\uD83D\uDE00", {"a": "😀"}),
        (r"a=\uD800x\uDC00", {"a": "\ufffdx\ufffd"}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a=x\x0cy\u2028z", {"a": "x\x0cy\u2028z"}),
        ("\\\na=1", {"a": "1"}),
        ("A->B.topics = a.*, b", {"A->B.topics": "a.*, b"}),
    ],
)
def test_reads_as_java_does(text, expected):
    assert parse(text).as_dict() == expected


def test_keeps_the_line_where_a_key_starts():
    entries = parse("# one\n\na=1\\\n 2\nb=3").entries
    assert (entries["a"].line, entries["b"].line) == (3, 5)


def test_the_later_duplicate_wins_and_is_noted():
    found = parse("a=1\nb=2\na=3")
    assert found.get("a") == "3"
    assert [(x.line, y.line) for x, y in found.duplicates] == [(1, 3)]


@pytest.mark.parametrize("text", [r"a=\u12", r"a=\uzzzz", r"a=\u+123"])
def test_a_malformed_escape_names_its_line(text):
    with pytest.raises(ConfigError, match="line 2"):
        parse("x=1\n" + text)


@given(st.dictionaries(_text, _text))
def test_what_is_dumped_reads_back(values):
    assert parse(dump(values)).as_dict() == values


@given(_text)
def test_any_text_reads_or_is_a_config_error(text):
    try:
        parse(text)
    except ConfigError as error:
        assert error.code == "config.syntax"
