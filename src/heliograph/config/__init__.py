"""Configuration: one table of every key; parsing, validation, secrets and docs come from it."""

from heliograph.config.flow import FlowConfig
from heliograph.config.jaas import JaasConfig, parse_jaas
from heliograph.config.keys import KEYS, Key, Scope, Status, Type
from heliograph.config.mirror_maker import MirrorMakerConfig
from heliograph.config.precedence import Effective
from heliograph.config.problems import ConfigErrors, Problem
from heliograph.config.providers import resolve
from heliograph.config.secrets import is_secret, redact
from heliograph.config.usage import Value, flow_values, other_values

load = MirrorMakerConfig.from_file

__all__ = [
    "KEYS",
    "ConfigErrors",
    "Effective",
    "FlowConfig",
    "JaasConfig",
    "Key",
    "MirrorMakerConfig",
    "Problem",
    "Scope",
    "Status",
    "Type",
    "Value",
    "flow_values",
    "is_secret",
    "load",
    "other_values",
    "parse_jaas",
    "redact",
    "resolve",
]
