"""Which ACLs are copied: MM2's rules, what is better than them, and that nobody gains anything."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from heliograph.control.acls.rules import AclRules, plan
from heliograph.policy import DefaultReplicationPolicy, IdentityReplicationPolicy
from heliograph.wire.acls import Acl

DEFAULT = DefaultReplicationPolicy()
IDENTITY = IdentityReplicationPolicy(source_alias="A")
#: On A; the flow mirrors those that are not "other".
TOPICS = ("o", "orders", "orders-eu", "other", "x")


def acl(text: str) -> Acl:
    """``ALLOW READ topic orders alice [from host]``; a trailing ``…`` makes a name a prefix."""
    permission, operation, kind, name, user, *rest = text.split()
    pattern = "PREFIXED" if name.endswith("…") else "LITERAL"
    host = rest[1] if rest else "*"
    return Acl(kind.upper(), name.rstrip("…"), pattern, f"User:{user}", host, operation, permission)


def rules(policy=DEFAULT, mirrored=TOPICS, foreign=(), **changes):
    def remote(topic):
        return policy.format_remote_topic("A", topic)

    selected = frozenset(mirrored) - {"other"}
    made = AclRules(
        source="A",
        target="B",
        mirrors=selected.__contains__,
        remote=remote,
        accepts_group=lambda group: not group.startswith("console"),
        mirrored=selected,
        foreign=frozenset(foreign),
    )
    return replace(made, **changes)


def added(*source, target=(), using=None):
    found = plan(map(acl, source), map(acl, target), (), using or rules())
    return {change.acl for change in found.additions}


def acls(*texts):
    return set(map(acl, texts))


def left_out(*source, using=None):
    found = plan(map(acl, source), (), (), using or rules())
    return {change.acl: change.reason for change in found.left_out}


# -- MM2's rules ------------------------------------------------------------------------------


def test_s36_allow_write_is_not_copied():
    assert added("ALLOW WRITE topic orders bob") == set()


def test_s36_allow_all_becomes_read():
    assert added("ALLOW ALL topic orders bob") == acls("ALLOW READ topic A.orders bob")


def test_s36_deny_stays_as_it_is():
    source = ("DENY ALL topic orders bob", "DENY WRITE topic orders bob from 10.0.0.1")
    assert added(*source) == acls(
        "DENY ALL topic A.orders bob", "DENY WRITE topic A.orders bob from 10.0.0.1"
    )


def test_who_denies_everybody_to_write_to_the_source_means_the_source():
    """The fence of a switchover, for one. Copied, it would keep the mirror out, too."""
    fence = "DENY WRITE topic orders *"
    assert added(fence, "ALLOW READ topic orders bob") == acls("ALLOW READ topic A.orders bob")
    assert left_out(fence) == {
        acl(fence): "it would keep the mirror from writing to the remote topic"
    }


@pytest.mark.parametrize(
    "operation", ["READ", "DESCRIBE", "DESCRIBE_CONFIGS", "ALTER", "DELETE", "CREATE"]
)
def test_other_operations_stay_with_principal_and_host(operation):
    found = added(f"ALLOW {operation} topic orders bob from 10.0.0.1")
    assert found == acls(f"ALLOW {operation} topic A.orders bob from 10.0.0.1")


def test_the_identity_policy_keeps_names():
    found = added("ALLOW READ topic orders bob", using=rules(IDENTITY))
    assert found == acls("ALLOW READ topic orders bob")


def test_topics_that_the_flow_does_not_mirror():
    assert added("ALLOW READ topic other bob") == set()
    assert left_out("ALLOW READ topic other bob") == {
        acl("ALLOW READ topic other bob"): "the flow does not mirror the topic"
    }


def test_prefixed_patterns_and_groups_are_opt_in():
    source = ("ALLOW READ topic ord… bob", "ALLOW READ group ord… bob")
    assert added(*source) == set()
    assert set(left_out(*source).values()) == {"heliograph.acls.prefixed is off"}


# -- the plan ---------------------------------------------------------------------------------


def test_only_what_is_missing_is_added():
    source = ("ALLOW READ topic orders bob", "ALLOW READ topic orders carol")
    assert added(*source, target=["ALLOW READ topic A.orders bob"]) == acls(
        "ALLOW READ topic A.orders carol"
    )


def test_reasons():
    [change] = plan([acl("ALLOW ALL topic orders bob")], (), (), rules()).additions
    assert change.reason == "A has ALLOW ALL on topic orders to User:bob, and ALL becomes READ"


def test_denials_come_first():
    source = ("ALLOW READ topic orders bob", "DENY READ topic orders carol")
    found = plan(map(acl, source), (), (), rules()).additions
    assert [change.acl.permission for change in found] == ["DENY", "ALLOW"]


# -- the wildcard, and denials that cover much ------------------------------------------------


@pytest.mark.parametrize("policy", [DEFAULT, IDENTITY])
def test_a_right_to_everything_is_not_copied(policy):
    one = "ALLOW READ topic * bob"
    for prefixed in (False, True):
        using = rules(policy, prefixed=prefixed)
        assert added(one, using=using) == set()
        reason = "it would also open topics that are not from A"
        assert left_out(one, using=using) == {acl(one): reason}


@pytest.mark.parametrize("wide", ["*", "ord…", "orders…"])
def test_a_wide_denial_follows_the_rights_that_it_takes_away(wide):
    source = ("ALLOW READ topic orders *", "ALLOW READ topic x carol", f"DENY ALL topic {wide} bob")
    assert added(*source) == acls(
        "ALLOW READ topic A.orders *", "ALLOW READ topic A.x carol", "DENY ALL topic A.orders bob"
    )


def test_a_denial_for_somebody_else_does_not():
    source = ("ALLOW READ topic orders carol", "DENY ALL topic * bob")
    assert added(*source) == acls("ALLOW READ topic A.orders carol")


def test_a_denial_of_part_of_a_prefix():
    source = ("ALLOW READ topic o… bob", "DENY READ topic orders… bob", "DENY READ topic other bob")
    assert added(*source, using=rules(prefixed=True)) == acls(
        "ALLOW READ topic A.o… bob", "DENY READ topic A.orders… bob", "DENY READ topic A.other bob"
    )


# -- prefixed patterns ------------------------------------------------------------------------


def test_a_prefix_is_renamed():
    using = rules(prefixed=True)
    source = ("ALLOW ALL topic ord… bob", "ALLOW WRITE topic ord… bob", "DENY READ topic ord… eve")
    assert added(*source, using=using) == acls(
        "ALLOW READ topic A.ord… bob", "DENY READ topic A.ord… eve"
    )


def test_a_prefix_of_topics_that_are_not_mirrored():
    reasons = left_out("ALLOW READ topic oth… bob", using=rules(prefixed=True))
    assert list(reasons.values()) == ["no topic that the flow mirrors begins with it"]


def test_a_prefix_that_would_cover_something_else_on_the_target():
    using = rules(IDENTITY, foreign=["ordinary"], prefixed=True)
    reasons = left_out("ALLOW READ topic ord… bob", using=using)
    assert list(reasons.values()) == ["ord is also the beginning of ordinary on B"]
    assert added("ALLOW READ topic orders… bob", using=using) == acls(
        "ALLOW READ topic orders… bob"
    )


def test_a_policy_that_does_not_keep_beginnings():
    class Suffix(DefaultReplicationPolicy):
        def format_remote_topic(self, source_alias, topic):
            return f"{topic}.{source_alias}"

    reasons = left_out("ALLOW READ topic ord… bob", using=rules(Suffix(), prefixed=True))
    assert list(reasons.values()) == [
        "the replication policy does not keep the beginnings of names"
    ]


# -- groups -----------------------------------------------------------------------------------


def test_groups_that_the_flow_selects_keep_their_names():
    source = (
        "ALLOW READ group billing bob",
        "ALLOW ALL group billing bob",
        "DENY READ group billing eve",
        "ALLOW READ group console-1 bob",
        "ALLOW READ group bill… bob",
        "ALLOW READ group * bob",
    )
    literal = source[:3]
    assert added(*source, using=rules(groups=True)) == acls(*literal)
    both = rules(groups=True, prefixed=True)
    assert added(*source, using=both) == acls(*literal, "ALLOW READ group bill… bob")
    assert left_out(*source, using=both) == {
        acl("ALLOW READ group console-1 bob"): "the flow's groups do not include it",
        acl("ALLOW READ group * bob"): "it would also open groups that are not from A",
    }


@pytest.mark.parametrize("allowed", ["WRITE", "ALL"])
@pytest.mark.parametrize("wide", ["*", "b…", "billing…"])
def test_a_wide_denial_of_writing_follows_rights_on_groups(allowed, wide):
    """They are copied as they are, so that a DENY of any operation can be about them."""
    source = (f"ALLOW {allowed} group billing bob", f"DENY WRITE group {wide} bob")
    assert added(*source, using=rules(groups=True)) == acls(
        f"ALLOW {allowed} group billing bob", "DENY WRITE group billing bob"
    )


def test_a_wide_denial_of_writing_stays_away_from_topics():
    """It would hit the mirror."""
    source = ("ALLOW ALL topic orders bob", "DENY WRITE topic * *")
    assert added(*source) == acls("ALLOW READ topic A.orders bob")


# -- revocation -------------------------------------------------------------------------------


def removed(source, target, remembered, **changes):
    using = rules(revoke=True, **changes)
    found = plan(map(acl, source), map(acl, target), map(acl, remembered), using)
    return {c.acl for c in found.removals}, set(found.forgotten)


def test_what_we_added_goes_with_its_original():
    copy = "ALLOW READ topic A.orders bob"
    assert removed([], [copy], [copy]) == (acls(copy), set())
    assert removed(["ALLOW READ topic orders bob"], [copy], [copy]) == (set(), set())


def test_what_others_made_stays():
    assert removed([], ["ALLOW READ topic A.orders bob"], []) == (set(), set())


def test_nothing_is_removed_unless_asked_for():
    copy = acl("ALLOW READ topic A.orders bob")
    assert plan([], [copy], [copy], rules()).removals == []


def test_what_is_gone_from_both_sides_is_forgotten():
    copy = "ALLOW READ topic A.orders bob"
    assert removed([], [], [copy]) == (set(), acls(copy))


@pytest.mark.parametrize(
    ("original", "copy"),
    [
        ("ALLOW READ topic other bob", "ALLOW READ topic A.other bob"),
        ("ALLOW READ topic ord… bob", "ALLOW READ topic A.ord… bob"),
    ],
)
def test_what_the_flow_would_not_copy_any_more_stays_while_the_source_has_it(original, copy):
    assert removed([original], [copy], [copy]) == (set(), set())


def test_its_denials_stay_too():
    source = ["ALLOW READ topic other *", "DENY ALL topic * bob"]
    copies = ["ALLOW READ topic A.other *", "DENY ALL topic A.other bob"]
    assert removed(source, copies, copies) == (set(), set())
    assert removed(source[:1], copies, copies) == (acls(copies[1]), set())


def test_groups_that_nobody_asked_the_source_for_stay():
    copy = "ALLOW READ group billing bob"
    assert removed([], [copy], [copy]) == (set(), set())
    assert removed([], [copy], [copy], groups=True) == (acls(copy), set())


def test_rights_go_before_denials():
    copies = [acl("ALLOW READ topic A.x *"), acl("DENY READ topic A.x bob")]
    found = plan([], copies, copies, rules(revoke=True)).removals
    assert [change.acl.permission for change in found] == ["ALLOW", "DENY"]


# -- properties -------------------------------------------------------------------------------

IMPLIED = {
    "DESCRIBE": {"READ", "WRITE", "DELETE", "ALTER"},
    "DESCRIBE_CONFIGS": {"ALTER_CONFIGS"},
}
OPERATIONS = ["READ", "WRITE", "DESCRIBE", "DELETE", "ALTER", "DESCRIBE_CONFIGS", "ALTER_CONFIGS"]
USERS = ["alice", "bob"]
HOSTS = ["10.0.0.1", "10.0.0.2"]


def may(having, user, host, operation, kind, name):
    """Kafka's StandardAuthorizer, for people who are no super users."""

    def about(one):
        if one.resource_type != kind or one.host not in {"*", host}:
            return False
        if one.principal not in {"User:*", f"User:{user}"}:
            return False
        if one.pattern == "PREFIXED":
            return name.startswith(one.name)
        return one.name in {"*", name}

    found = [one for one in having if about(one)]
    if any(one.permission == "DENY" and one.operation in {operation, "ALL"} for one in found):
        return False
    enough = {operation, "ALL"} | IMPLIED.get(operation, set())
    return any(one.permission == "ALLOW" and one.operation in enough for one in found)


def any_acl(kind, names, prefixes):
    named = st.one_of(
        st.tuples(st.sampled_from([*names, "*"]), st.just("LITERAL")),
        st.tuples(st.sampled_from(prefixes), st.just("PREFIXED")),
    )
    return st.builds(
        lambda named, user, host, operation, permission: Acl(
            kind, named[0], named[1], f"User:{user}", host, operation, permission
        ),
        named,
        st.sampled_from([*USERS, "*"]),
        st.sampled_from([*HOSTS, "*"]),
        st.sampled_from([*OPERATIONS, "ALL"]),
        st.sampled_from(["ALLOW", "DENY"]),
    )


GROUPS = ("g", "group", "console-1")
topic_acls = any_acl("TOPIC", TOPICS, ["o", "or", "orders", "orders-", "oth", "x"])
group_acls = any_acl("GROUP", GROUPS, ["g", "gr", "console"])
some_acls = st.sets(st.one_of(topic_acls, group_acls), max_size=8)
some_rules = st.builds(
    rules,
    policy=st.sampled_from([DEFAULT, IDENTITY]),
    foreign=st.sets(st.sampled_from(["A.checkpoints.internal", "ordinary", "orders-b", "x1"])),
    prefixed=st.booleans(),
    groups=st.booleans(),
    revoke=st.booleans(),
)


@given(some_acls, some_rules)
@example(acls("ALLOW WRITE group g alice", "DENY WRITE group g… alice"), rules(groups=True))
def test_nobody_may_do_more_to_a_copy_than_to_its_source(source, using):
    target = {change.acl for change in plan(source, (), (), using).additions}
    for user in USERS:
        for host in HOSTS:
            for operation in OPERATIONS:
                for topic in TOPICS:
                    there = may(target, user, host, operation, "TOPIC", using.remote(topic))
                    assert not there or may(source, user, host, operation, "TOPIC", topic)
                for topic in using.foreign:
                    assert not may(target, user, host, operation, "TOPIC", topic)
                for group in GROUPS:
                    there = may(target, user, host, operation, "GROUP", group)
                    assert not there or may(source, user, host, operation, "GROUP", group)


@given(some_acls, some_rules)
@example(acls("ALLOW READ topic o… alice"), rules())
def test_readers_by_name_may_read_the_copy(source, using):
    target = {change.acl for change in plan(source, (), (), using).additions}
    for user in USERS:
        for topic in using.mirrored:
            # A prefix that happens to be a topic's whole name is still a prefix: it is opt-in.
            named = {
                a for a in source
                if a.permission == "DENY" or (a.pattern, a.name) == ("LITERAL", topic)
            }  # fmt: skip
            if may(named, user, HOSTS[0], "READ", "TOPIC", topic):
                assert may(target, user, HOSTS[0], "READ", "TOPIC", using.remote(topic))


@given(st.sets(topic_acls, max_size=8), some_acls)
def test_rights_by_name_are_copied_as_mm2_copies_them(source, target):
    """MirrorSourceConnector's shouldReplicateAcl and targetAclBinding, for names other than *."""
    using = rules(prefixed=False)
    named = {a for a in source if a.pattern == "LITERAL" and a.name != "*"}
    expected = set()
    for one in named:
        if (one.permission, one.operation) == ("ALLOW", "WRITE") or one.name == "other":
            continue
        if (one.operation, one.principal) == ("WRITE", "User:*"):
            continue  # the difference: MM2 denies itself to write
        operation = "READ" if (one.permission, one.operation) == ("ALLOW", "ALL") else one.operation
        expected.add(replace(one, name=f"A.{one.name}", operation=operation))
    found = {change.acl for change in plan(named, target, (), using).additions}
    assert found == expected - target


@given(some_acls, some_acls, some_rules)
def test_a_second_run_has_nothing_to_do(source, target, using):
    first = plan(source, target, (), using)
    copied = [change.acl for change in first.additions]
    second = plan(source, {*target, *copied}, copied, using)
    assert (second.additions, second.removals, second.forgotten) == ([], [], [])


@given(some_acls, some_acls, some_acls, some_rules)
def test_only_what_was_copied_is_removed(before, source, target, using):
    copied = {change.acl for change in plan(before, target, (), using).additions}
    found = plan(source, target | copied, copied, using)
    gone = {change.acl for change in found.removals}
    assert gone <= copied
    assert not gone & target
    # And with it, nobody may do more than the source allows now, as far as we granted it.
    if using.revoke:
        granted = (copied - gone) | {change.acl for change in found.additions}
        for user in USERS:
            for topic in TOPICS:
                there = may(granted, user, HOSTS[0], "READ", "TOPIC", using.remote(topic))
                assert not there or may(source, user, HOSTS[0], "READ", "TOPIC", topic)
