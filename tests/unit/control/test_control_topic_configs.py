"""Which properties follow the source topic, and which are the target's own."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from heliograph.control.topics.config_rules import ConfigRules, copied_at_creation, plan_topic
from heliograph.policy import DefaultConfigPropertyFilter
from heliograph.wire.configs import ConfigEntry, ConfigSource

OWN, DEFAULT = ConfigSource.TOPIC, ConfigSource.DEFAULT


def entries(**values):
    """name=value is set on the topic; name=(value, source) comes from elsewhere."""
    found = {}
    for key, value in values.items():
        name = key.replace("_", ".")
        text, source = value if isinstance(value, tuple) else (value, OWN)
        found[name] = ConfigEntry(name, text, source)
    return found


def rules(exclude=(), defaults="target", overwrite=False):
    return ConfigRules("A", DefaultConfigPropertyFilter(exclude, defaults), overwrite)


KEEP, OVERWRITE = rules(), rules(overwrite=True)


def plan(source, target, remembered=None, by=KEEP):
    return plan_topic("t", "A.t", source, target, remembered or {}, by)


def changed(found):
    return {c.name: (c.old, c.new) for c in found.changes}


# -- what the source topic sets ----------------------------------------------------------------


def test_a_property_of_the_source_topic_is_set():
    found = plan(entries(retention_ms="1"), entries(retention_ms=("7", DEFAULT)))
    [change] = found.changes
    assert (change.topic, change.name, change.old, change.new) == ("A.t", "retention.ms", "7", "1")
    assert change.reason == "set on source topic t"
    assert found.copied == {"retention.ms": "1"}


def test_it_wins_over_what_the_target_has_in_both_modes():
    for by in (KEEP, OVERWRITE):
        found = plan(entries(retention_ms="1"), entries(retention_ms="5"), by=by)
        assert changed(found) == {"retention.ms": ("5", "1")}


def test_only_differences_are_changed_and_equal_values_count_as_copied():
    found = plan(entries(retention_ms="1"), entries(retention_ms="1"))
    assert found.changes == []
    assert found.copied == {"retention.ms": "1"}, "MM2 made this topic, say"


def test_a_value_that_the_target_only_has_by_default_is_set_explicitly():
    found = plan(entries(retention_ms="7"), entries(retention_ms=("7", DEFAULT)))
    assert changed(found) == {"retention.ms": ("7", "7")}, "its default may change"


# -- S31, S32, S35: exclusions -----------------------------------------------------------------


def test_s31_excluded_read_only_and_sensitive_properties_are_not_copied():
    source = {
        "min.insync.replicas": ConfigEntry("min.insync.replicas", "2", OWN),
        "a": ConfigEntry("a", "1", OWN, read_only=True),
        "b": ConfigEntry("b", "1", OWN, sensitive=True),
        "c": ConfigEntry("c", None, OWN),
        "d": ConfigEntry("d", "1", ConfigSource.STATIC_BROKER),
    }
    target = {name: ConfigEntry(name, "x", DEFAULT) for name in source}
    for defaults in ("target", "source"):
        by = rules([r"min\.insync\.replicas"], defaults, overwrite=True)
        assert plan(source, target, by=by).changes == []
        assert copied_at_creation("t", source, by) == {}


def test_s32_exclusion_by_a_regular_expression():
    by = rules([r"max\..*"])
    source = entries(max_message_bytes="1", retention_ms="2")
    target = entries(max_message_bytes=("9", DEFAULT), retention_ms=("9", DEFAULT))
    assert changed(plan(source, target, by=by)) == {"retention.ms": ("9", "2")}


def test_s35_an_excluded_property_that_was_edited_on_the_target_stays():
    for source in (entries(retention_ms="1"), entries(retention_ms=("7", DEFAULT)), {}):
        for defaults in ("target", "source"):
            by = rules([r"retention\.ms"], defaults, overwrite=True)
            found = plan(source, entries(retention_ms="5"), {"retention.ms": "5"}, by)
            assert found.changes == []
            assert found.copied == {}


# -- S33: defaults stay the target's -----------------------------------------------------------


def test_s33_a_default_of_the_source_is_not_copied():
    found = plan(entries(retention_ms=("7", DEFAULT)), entries(retention_ms=("9", DEFAULT)))
    assert found.changes == []


def test_s33_a_property_removed_on_the_source_is_reset():
    source = entries(retention_ms=("7", DEFAULT))
    found = plan(source, entries(retention_ms="1"), {"retention.ms": "1"})
    assert changed(found) == {"retention.ms": ("1", None)}
    assert found.changes[0].reason == "not set on source topic t any more"
    assert found.copied == {"retention.ms": "1"}, "ours until it is seen to be gone"
    gone = plan(source, entries(retention_ms=("9", DEFAULT)), found.copied)
    assert (gone.changes, gone.copied) == ([], {})


def test_it_is_reset_also_where_the_source_s_brokers_have_a_static_value():
    source = entries(retention_ms=("7", ConfigSource.STATIC_BROKER))
    found = plan(source, entries(retention_ms="1"), {"retention.ms": "1"})
    assert changed(found) == {"retention.ms": ("1", None)}


def test_an_operator_s_own_property_is_kept():
    source = entries(retention_ms=("7", DEFAULT))
    for remembered in ({}, {"retention.ms": "1"}):
        found = plan(source, entries(retention_ms="5"), remembered)
        assert found.changes == [], "also if ours was there before"
        assert found.copied == {}


def test_overwrite_resets_what_is_default_on_the_source():
    found = plan(entries(retention_ms=("7", DEFAULT)), entries(retention_ms="5"), by=OVERWRITE)
    assert changed(found) == {"retention.ms": ("5", None)}
    assert "heliograph.target.configs=overwrite" in found.changes[0].reason


def test_dynamic_defaults_of_the_source_s_brokers_are_copied_by_overwrite_only():
    for origin in (ConfigSource.BROKER, ConfigSource.ALL_BROKERS):
        source = entries(retention_ms=("3", origin))
        assert plan(source, entries(retention_ms=("9", DEFAULT))).changes == []
        assert plan(source, entries(retention_ms="5")).changes == []
        assert copied_at_creation("t", source, KEEP) == {}
        found = plan(source, entries(retention_ms=("9", DEFAULT)), by=OVERWRITE)
        assert changed(found) == {"retention.ms": ("9", "3")}
        assert copied_at_creation("t", source, OVERWRITE) == {"retention.ms": "3"}


# -- S34: defaults of the source ---------------------------------------------------------------


def test_s34_a_default_of_the_source_overwrites_the_target_except_for_excluded_ones():
    by = rules([r"segment\..*"], "source")
    source = entries(retention_ms=("7", DEFAULT), segment_bytes=("8", DEFAULT))
    found = plan(source, entries(retention_ms="5", segment_bytes="6"), by=by)
    assert changed(found) == {"retention.ms": ("5", "7")}
    assert "use.defaults.from=source" in found.changes[0].reason
    assert copied_at_creation("t", source, by) == {"retention.ms": "7"}


def test_s34_an_equal_default_needs_no_change():
    found = plan(entries(retention_ms=("7", DEFAULT)), entries(retention_ms=("7", DEFAULT)),
                 by=rules(defaults="source"))  # fmt: skip
    assert (found.changes, found.copied) == ([], {})


def test_back_to_the_target_s_defaults():
    source, target = entries(retention_ms=("7", DEFAULT)), entries(retention_ms="7")
    there = plan(source, target, by=rules(defaults="source"))
    back = plan(source, target, there.copied)
    assert changed(back) == {"retention.ms": ("7", None)}


# -- versions ----------------------------------------------------------------------------------


def test_a_property_that_the_target_does_not_know_is_named_and_left_out():
    found = plan(
        entries(new_thing="1", retention_ms=("7", DEFAULT)), {}, by=rules(defaults="source")
    )
    assert found.changes == []
    assert found.unknown == ["new.thing"], "defaults are not worth a word"


def test_a_property_that_only_the_target_knows_is_its_own():
    found = plan({}, entries(new_thing="1"), by=OVERWRITE)
    assert found.changes == []


# -- properties --------------------------------------------------------------------------------

names = st.sampled_from(["a", "b", "c", "d"])
values = st.sampled_from(["1", "2", "3"])
DEFAULTS = {"a": "1", "b": "2", "c": "3", "d": "1"}


def holding(own, elsewhere):
    """All properties of a topic that sets some itself."""
    return {
        name: ConfigEntry(name, own[name], OWN)
        if name in own
        else ConfigEntry(name, DEFAULTS[name], elsewhere.get(name, DEFAULT))
        for name in DEFAULTS
    }


def applied(own, found):
    changes = {c.name: c.new for c in found.changes}
    return {k: v for k, v in (own | changes).items() if v is not None}


own_values = st.dictionaries(names, values)
origins = st.dictionaries(
    names, st.sampled_from([ConfigSource.STATIC_BROKER, ConfigSource.ALL_BROKERS, DEFAULT])
)
all_rules = st.builds(
    rules, st.lists(names, max_size=2), st.sampled_from(["source", "target"]), st.booleans()
)


@given(own_values, origins, own_values, own_values, all_rules)
def test_a_plan_that_was_carried_out_leaves_nothing_to_do(here, elsewhere, there, memory, by):
    source = holding(here, elsewhere)
    first = plan(source, holding(there, {}), memory, by)
    after = applied(there, first)
    second = plan(source, holding(after, {}), first.copied, by)
    assert second.changes == []
    third = plan(source, holding(after, {}), second.copied, by)
    assert third.copied == second.copied


@given(own_values, origins, own_values, own_values, all_rules)
def test_all_that_the_source_topic_sets_holds_on_the_target(here, elsewhere, there, memory, by):
    after = applied(there, plan(holding(here, elsewhere), holding(there, {}), memory, by))
    for name, value in here.items():
        if by.selection.should_replicate_config_property(name):
            assert after[name] == value


@given(own_values, origins, own_values, own_values, st.lists(names, max_size=2))
def test_what_an_operator_set_is_kept(here, elsewhere, there, memory, exclude):
    """Where the source topic does not set it, and it is not what was copied there."""
    by = rules(exclude)
    after = applied(there, plan(holding(here, elsewhere), holding(there, {}), memory, by))
    for name, value in there.items():
        if name not in here and memory.get(name) != value:
            assert after[name] == value


@given(own_values, own_values, own_values, all_rules)
def test_nothing_is_reset_twice_or_by_the_wrong_memory(here, there, memory, by):
    """A value is reset in keep mode only if it is the very value that was copied."""
    found = plan(holding(here, {}), holding(there, {}), memory, by)
    if not by.overwrite:
        for change in found.changes:
            if change.new is None:
                assert memory[change.name] == there[change.name]


@given(st.lists(st.tuples(own_values, st.one_of(st.none(), own_values)), min_size=1, max_size=6))
def test_the_source_s_history_leaves_no_trace(history):
    """Whatever the source topic was set to over time, the target ends with the operator's own
    properties and those of the source."""
    there, memory, operator = {}, {}, {}
    for here, edits in history:
        found = plan(holding(here, {}), holding(there, {}), memory)
        there, memory = applied(there, found), found.copied
        if edits:
            # The operator edits only what the source topic leaves alone, to values of its own.
            own = {k: f"own-{v}" for k, v in edits.items() if k not in here}
            operator |= own
            there |= own
        operator = {k: v for k, v in operator.items() if k not in here}
    last = history[-1][0]
    assert there == operator | last
