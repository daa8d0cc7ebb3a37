"""Which keys hold secrets, and how they are shown: never. Templates are no secrets and stay."""

from __future__ import annotations

import re
from functools import lru_cache

from heliograph.config.key import Type
from heliograph.config.keys import find_anywhere

__all__ = ["HIDDEN", "is_secret", "redact", "redact_text"]

HIDDEN = "[hidden]"

# Spark's own default pattern misses sasl.jaas.config, ssl.keystore.key and basic.auth.user.info.
_SECRET = re.compile(
    r"password|passwd|secret|credential|private|jaas|token(?!\.endpoint|s\.file)|user\.info|access\.?key"
    r"|ssl\.keystore\.key$|apikey|api\.key",
    re.IGNORECASE,
)
_TEMPLATE = re.compile(r"\$\{[^}:]+:[^}]*\}")
_URL_USER = re.compile(r"://[^/@\s]+@")
#: A URL's query may hold a key; nobody needs it to know which URL is meant.
_URL_QUERY = re.compile(r"(://[^?\s]*\?)[^\s]+")
#: What gives a secret away wherever it was pasted.
_SECRET_VALUE = re.compile(r"PRIVATE KEY|(?:password|secret)\s*=", re.IGNORECASE)
#: Configurations are shown again and again; each name is looked up once.
_NAMES = 4096


#: The same in a text of any kind, with what it gives away. Quotes may be escaped, as in JSON.
_SECRET_TEXT = re.compile(
    r"""((?:password|passwd|secret|token|api[._-]?key)["']?\s*[=:]\s*)"""
    r"""(?!\$\{)(\\?["'])?[^\s"'\\;,&]+""",
    re.IGNORECASE,
)
_PRIVATE_KEY = re.compile(r"""(-----BEGIN [A-Z ]*PRIVATE KEY-----)[^"]*?(-----END|(?=")|$)""")


@lru_cache(_NAMES)
def is_secret(key: str) -> bool:
    """Whether the value of ``key`` (with or without prefix) must not be shown.

    A key that the table does not know counts as secret: it may be a misspelt password.
    """
    known = find_anywhere(key)
    if known is None:
        return True
    return known.type is Type.PASSWORD or _SECRET.search(key) is not None


def redact(key: str, value: str) -> str:
    """``value`` as it may be shown: secrets hidden unless they are nothing but a template."""
    if value and (is_secret(key) or _SECRET_VALUE.search(value)):
        return value if _TEMPLATE.fullmatch(value.strip()) else HIDDEN
    return _URL_QUERY.sub(rf"\1{HIDDEN}", _URL_USER.sub(f"://{HIDDEN}@", value))


def redact_text(text: str) -> str:
    """A text for a log, e.g. a message of somebody else's, without what looks like a secret in it.

    Messages of ours hold none. This is for those that quote: a JAAS line, a URL, a private key.
    """
    text = _URL_USER.sub(f"://{HIDDEN}@", text)
    text = _PRIVATE_KEY.sub(rf"\1{HIDDEN}\2", text)
    return _SECRET_TEXT.sub(lambda found: f"{found[1]}{found[2] or ''}{HIDDEN}", text)
