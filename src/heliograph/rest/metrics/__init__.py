"""``GET /metrics``: what is known of the mirror, for Prometheus. See docs/metrics.md."""
