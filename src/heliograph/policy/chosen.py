"""The filters and the policy that a flow's configuration asks for: the one place that makes them.

Built-in ones go by MM2's class names. Any other name is that of an entry point of an installed
package: a class that is called with the flow's properties, as MM2 calls ``configure(Map)``.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import cast

from heliograph.config import FlowConfig, resolve
from heliograph.config.keys import flow_key
from heliograph.config.plugins import installed, package_of
from heliograph.errors import ConfigError
from heliograph.policy.filters import (
    ConfigPropertyFilter,
    DefaultConfigPropertyFilter,
    DefaultGroupFilter,
    DefaultTopicFilter,
    GroupFilter,
    TopicFilter,
    WithoutDrills,
)
from heliograph.policy.replication import (
    DefaultReplicationPolicy,
    IdentityReplicationPolicy,
    ReplicationPolicy,
)

__all__ = [
    "config_property_filter_from",
    "group_filter_from",
    "policy_from",
    "policy_of",
    "topic_filter_from",
]

_SEPARATOR = "replication.policy.separator"


def topic_filter_from(config: FlowConfig) -> TopicFilter:
    """What selects the flow's topics (``topic.filter.class``)."""
    if _is_built_in("topic.filter.class", config.topic_filter_class):
        return DefaultTopicFilter(config.topics, config.topics_exclude)
    made = _own("topic.filter.class", config.topic_filter_class, TopicFilter, _all_of(config))
    return cast("TopicFilter", made)


def group_filter_from(config: FlowConfig) -> GroupFilter:
    """What selects the flow's consumer groups (``group.filter.class``)."""
    if _is_built_in("group.filter.class", config.group_filter_class):
        return DefaultGroupFilter(config.groups, config.groups_exclude)
    made = _own("group.filter.class", config.group_filter_class, GroupFilter, _all_of(config))
    return WithoutDrills(cast("GroupFilter", made))


def config_property_filter_from(config: FlowConfig) -> ConfigPropertyFilter:
    """What selects properties of the flow's topics (``config.property.filter.class``)."""
    key, name = "config.property.filter.class", config.config_property_filter_class
    if _is_built_in(key, name):
        return DefaultConfigPropertyFilter(
            config.config_properties_exclude, config.use_defaults_from
        )
    return cast("ConfigPropertyFilter", _own(key, name, ConfigPropertyFilter, _all_of(config)))


def policy_from(config: FlowConfig) -> ReplicationPolicy:
    """How the flow's remote topics are named (``replication.policy.class``)."""
    properties = _all_of(config)
    if not config.replication_policy_separator_is_set:
        del properties[_SEPARATOR]
    return policy_of(config.replication_policy_class, properties)


def policy_of(name: str, properties: Mapping[str, str]) -> ReplicationPolicy:
    """The policy called ``name``, from properties of which only the wanted ones are set.

    Raises:
        ConfigError: ``config.plugin``: an own policy cannot be made.
    """
    if not _is_built_in("replication.policy.class", name):
        made = _own("replication.policy.class", name, ReplicationPolicy, properties)
        return cast("ReplicationPolicy", made)
    separator = properties.get(_SEPARATOR)
    # MM2 reads the internal-separator key only when a separator is set.
    internal = properties.get("replication.policy.internal.topic.separator.enabled", "true")
    internal_enabled = separator is None or internal.strip().lower() == "true"
    if name.endswith("IdentityReplicationPolicy"):
        source = properties.get("source.cluster.alias")
        return IdentityReplicationPolicy(separator or ".", internal_enabled, source)
    return DefaultReplicationPolicy(separator or ".", internal_enabled)


def _is_built_in(key: str, name: str) -> bool:
    return name in flow_key(key).allowed


def _all_of(config: FlowConfig) -> dict[str, str]:
    """Every value of the flow by its key, defaults included, templates resolved."""
    providers = config.target_admin.providers
    return {
        **{
            key: resolve(effective.value, providers)
            for key, effective in config.effective.items()
            if effective.value is not None
        },
        "source.cluster.alias": config.flow.source,
        "target.cluster.alias": config.flow.target,
    }


def _own(key: str, name: str, interface: type, properties: Mapping[str, str]) -> object:
    offers = installed(flow_key(key).plugins).get(name, ())
    if len(offers) != 1:
        reason = flow_key(key).problem(name)
        raise ConfigError("config.plugin", f"{key}={name}: {reason}", flow_key(key).next_step())
    (entry,) = offers
    what = f"{key}={name}: {entry.value} of {package_of(entry)}"
    hint = "docs/extending.md shows what it must look like"
    try:
        made = entry.load()(dict(properties))
    except Exception as error:
        text = f"{what} cannot be made: {type(error).__name__}: {error}"
        raise ConfigError("config.plugin", text, hint) from error
    if not isinstance(made, interface):
        wanted = (n for n, m in vars(interface).items() if callable(m) and not n.startswith("_"))
        missing = [n for n in wanted if not callable(getattr(made, n, None))]
        text = f"{what} is no {interface.__name__}: it lacks {', '.join(missing)}"
        raise ConfigError("config.plugin", text, hint)
    return made
