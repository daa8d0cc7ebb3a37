"""Hypothesis for machines that are shared: how long an example took proves nothing."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "heliograph", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.load_profile("heliograph")
