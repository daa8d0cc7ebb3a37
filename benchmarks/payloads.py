"""What the records of the backlogs hold."""

from __future__ import annotations

import json
import random
from functools import cache

__all__ = ["json_events"]

_EVENTS = 20_000


@cache
def json_events() -> tuple[bytes, ...]:
    """20,000 shop events of ~339 B, the same every time."""
    chance = random.Random(7)
    events = ["page_view", "add_to_cart", "purchase", "search", "login", "logout"]
    tags = ["new", "sale", "vip", "promo", "a", "b", "c"]
    return tuple(
        json.dumps(
            {
                "event": chance.choice(events),
                "user_id": chance.randint(1, 5_000_000),
                "session": f"{chance.getrandbits(128):032x}",
                "ts": 1794767853070 + i * 13,
                "url": f"/shop/{chance.choice(['shoes', 'hats', 'bags', 'books'])}"
                f"/{chance.randint(1, 99999)}",
                "agent": "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"
                f" Chrome/{chance.randint(90, 150)}.0",
                "price": round(chance.random() * 300, 2),
                "currency": "EUR",
                "geo": {
                    "lat": round(chance.uniform(-90, 90), 5),
                    "lon": round(chance.uniform(-180, 180), 5),
                    "country": chance.choice(["DE", "FR", "US", "CN", "BR"]),
                },
                "tags": chance.sample(tags, 3),
            }
        ).encode()
        for i in range(_EVENTS)
    )
