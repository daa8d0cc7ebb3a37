"""Hypothesis for machines that are shared: how long an example took proves nothing."""

from __future__ import annotations

from hypothesis import HealthCheck, settings

settings.register_profile(
    "heliograph", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
# `make chaos`: other examples each time, and more of them. What fails is printed with the line that
# repeats it.
settings.register_profile(
    "explore", settings.get_profile("heliograph"), derandomize=False, max_examples=1000,
    print_blob=True,
)  # fmt: skip
settings.load_profile("heliograph")
