"""Who callers are: passwords, tokens and certificates. Runs in the threads of the REST server.

Files hold a line per user or token, ``name:role:hash``; lines with # are comments.

    users    alice:admin:scrypt$16384$8$1$<salt>$<hash>     `hash_password`; the hash is slow
    tokens   ci:operator:sha256$<hash>                      `new_token`; tokens are random, so a
                                                            quick hash will do

Files are read again when they change. One that cannot be read any more changes nothing: callers
who were known stay known, and the log says why.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import logging
import os
import secrets
import stat
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Generic, NamedTuple, TypeVar

from cryptography import x509
from cryptography.x509.oid import NameOID

from heliograph.config.properties import parse
from heliograph.errors import ConfigError
from heliograph.rest.settings import RestSettings, Role

__all__ = ["Caller", "Credentials", "hash_password", "new_token"]

log = logging.getLogger(__name__)

#: 16 MiB and some 40 ms for each guess.
_N, _R, _P = 1 << 14, 8, 1
#: Of a hash in a file: nobody's line may take more than 64 MiB.
_MOST_MEMORY = 64 << 20
_SALT_BYTES, _KEY_BYTES, _TOKEN_BYTES = 16, 32, 32
#: How often files are looked at.
_LOOK_SECONDS = 1.0
#: For so long a password that was right is not hashed again.
_REMEMBERED_SECONDS, _MOST_REMEMBERED = 300.0, 1000

Value = TypeVar("Value")


@dataclass(frozen=True, slots=True)
class Caller:
    """Who asks. ``name`` is empty if nobody has to say; ``how`` they said it."""

    name: str
    role: Role
    how: str = ""


class _Hashed(NamedTuple):
    role: Role
    hash: str


def hash_password(password: str) -> str:
    """The third field of a line in the users file."""
    salt = os.urandom(_SALT_BYTES)
    made = hashlib.scrypt(password.encode(), salt=salt, n=_N, r=_R, p=_P, dklen=_KEY_BYTES)
    return f"scrypt${_N}${_R}${_P}${_text(salt)}${_text(made)}"


def new_token(name: str, role: Role) -> tuple[str, str]:
    """A token to hand out, and its line in the tokens file."""
    token = secrets.token_urlsafe(_TOKEN_BYTES)
    return token, f"{name}:{role.name.lower()}:{_hash_token(token)}"


class Credentials:
    """Knows callers by what they show. Thread-safe. Raises ConfigError if a file is not right."""

    def __init__(self, settings: RestSettings) -> None:
        self._roles = settings.certificate_roles
        self._anonymous = not settings.authenticates
        self._users = _File(settings.users_file, _read_users)
        self._tokens = _File(settings.tokens_file, _read_tokens)
        role = settings.passwords_role
        self._passwords = _File(settings.passwords_file, lambda text: _read_passwords(text, role))
        if settings.passwords_file is not None:
            _warn_if_readable(settings.passwords_file)
        self._secret = os.urandom(_KEY_BYTES)
        self._remembered: dict[bytes, tuple[float, str, _Hashed]] = {}
        #: Compared with the password of a user who does not exist, so that it takes as long.
        self._nobody = hash_password(secrets.token_urlsafe())

    @property
    def logins(self) -> list[str]:
        """How callers may show who they are: basic, bearer, certificate; none if nobody has to."""
        basic = self._users.path is not None or self._passwords.path is not None
        bearer = self._tokens.path is not None
        certificate = bool(self._roles) and not self._anonymous
        return ["basic"] * basic + ["bearer"] * bearer + ["certificate"] * certificate

    @property
    def challenges(self) -> list[str]:
        """What a caller who is not known may try: values of WWW-Authenticate."""
        known = {"basic": 'Basic realm="heliograph", charset="UTF-8"', "bearer": "Bearer"}
        return [known[login] for login in self.logins if login in known]

    def at_once(self, authorization: str, certificate: bytes | None) -> Caller | None:
        """Who it is, if that can be told without a slow hash; see `slowly`."""
        if self._anonymous:
            return Caller("", Role.ADMIN)
        if certificate is not None and (caller := self._certified(certificate)) is not None:
            return caller
        scheme, _, rest = authorization.partition(" ")
        if scheme.lower() == "bearer":
            hashed = _hash_token(rest.strip())
            found = self._tokens.value.get(hashed) if self._tokens.value else None
            return None if found is None else Caller(found[0], found[1], "token")
        user, password = _basic(authorization)
        if not user:
            return None
        plain = (self._passwords.value or {}).get(user)
        if plain is not None and hmac.compare_digest(plain.hash.encode(), password.encode()):
            return Caller(user, plain.role, "password")
        return self._recalled(user, password)

    def slowly(self, authorization: str) -> Caller | None:
        """Who it is by name and password. Takes some 40 ms of a core; not for an event loop."""
        user, password = _basic(authorization)
        if not user or self._users.path is None:
            return None
        hashed = (self._users.value or {}).get(user)
        if not _is_password(password, hashed.hash if hashed is not None else self._nobody):
            return None
        if hashed is None:
            return None
        if len(self._remembered) >= _MOST_REMEMBERED:
            self._remembered.clear()
        until = time.monotonic() + _REMEMBERED_SECONDS
        self._remembered[self._digest(user, password)] = (until, user, hashed)
        return Caller(user, hashed.role, "password")

    def _recalled(self, user: str, password: str) -> Caller | None:
        found = self._remembered.get(self._digest(user, password))
        if found is None or found[0] < time.monotonic():
            return None
        # A line that was changed or removed since does not count any more.
        if (self._users.value or {}).get(user) != found[2]:
            return None
        return Caller(user, found[2].role, "password")

    def _digest(self, user: str, password: str) -> bytes:
        return hmac.digest(self._secret, f"{user}\0{password}".encode(), "sha256")

    def _certified(self, certificate: bytes) -> Caller | None:
        """TLS has checked who signed it."""
        subject = x509.load_der_x509_certificate(certificate).subject
        names = [str(a.value) for a in subject.get_attributes_for_oid(NameOID.COMMON_NAME)]
        name = names[0] if len(names) == 1 else ""
        role = self._roles.get(name) if name else None
        role = role or self._roles.get("*")
        return None if role is None else Caller(name or "a certificate", role, "certificate")


class _File(Generic[Value]):
    """What a file says; read again when it has changed."""

    def __init__(self, path: Path | None, read: Callable[[str], Value]) -> None:
        self.path = path
        self._read = read
        self._known: tuple[object, Value] | None = None
        self._looked = 0.0
        if path is not None:
            mark = self._mark(path)
            self._known = (mark, self._parsed(path))
            self._looked = time.monotonic()

    @property
    def value(self) -> Value | None:
        """None if there is no file."""
        if self.path is None or self._known is None:
            return None
        now = time.monotonic()
        if now - self._looked > _LOOK_SECONDS:
            self._looked = now
            try:
                if (mark := self._mark(self.path)) != self._known[0]:
                    # The mark first, so that what is wrong is told once.
                    self._known = (mark, self._known[1])
                    self._known = (mark, self._parsed(self.path))
                    log.info("%s was read again", self.path)
            except ConfigError as error:
                log.warning("%s; what it said before still holds", error)
        return self._known[1]

    def _mark(self, path: Path) -> object:
        try:
            found = path.stat()
        except OSError as error:
            raise _unreadable(path, error) from None
        return found.st_mtime_ns, found.st_size, found.st_ino

    def _parsed(self, path: Path) -> Value:
        try:
            return self._read(path.read_text(encoding="utf-8"))
        except (OSError, UnicodeDecodeError) as error:
            raise _unreadable(path, error) from None
        except ConfigError as error:
            raise ConfigError(error.code, f"{path}: {error.args[0]}", error.hint) from None


def _unreadable(path: Path, error: Exception) -> ConfigError:
    why = getattr(error, "strerror", None) or "it is not UTF-8 text"
    return ConfigError("rest.credentials", f"cannot read {path}: {why}")


def _lines(text: str) -> list[tuple[int, str, Role, str]]:
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        # Neither the line nor what is wrong in it is shown: it may be a password.
        name, _, rest = line.strip().partition(":")
        role, colon, hashed = rest.partition(":")
        if not colon or not name:
            raise ConfigError(
                "rest.credentials", f"line {number} is not name:role:hash",
                "heliograph rest user and heliograph rest token make such lines",
            )  # fmt: skip
        try:
            found.append((number, name, Role.named(role), hashed.strip()))
        except ConfigError:
            raise ConfigError("rest.credentials", f"line {number} names no role") from None
    return found


def _read_users(text: str) -> Mapping[str, _Hashed]:
    users = {}
    for number, name, role, hashed in _lines(text):
        if _scrypt(hashed) is None:
            raise ConfigError("rest.credentials", f"line {number} has no hash of a password")
        users[name] = _Hashed(role, hashed)
    return users


def _read_tokens(text: str) -> Mapping[str, tuple[str, Role]]:
    tokens = {}
    for number, name, role, hashed in _lines(text):
        kind, _, digits = hashed.partition("$")
        if kind != "sha256" or len(digits) != 2 * _KEY_BYTES:
            raise ConfigError("rest.credentials", f"line {number} has no hash of a token")
        tokens[f"sha256${digits.lower()}"] = (name, role)
    return tokens


def _read_passwords(text: str, role: Role) -> Mapping[str, _Hashed]:
    return {user: _Hashed(role, value) for user, value in parse(text).as_dict().items()}


def _warn_if_readable(path: Path) -> None:
    if path.stat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
        log.warning(
            "%s holds passwords, and others than its owner may read it; a file of hashes"
            " (heliograph.rest.users.file) would not mind", path,
        )  # fmt: skip


def _basic(authorization: str) -> tuple[str, str]:
    scheme, _, rest = authorization.partition(" ")
    if scheme.lower() != "basic":
        return "", ""
    try:
        text = base64.b64decode(rest.strip(), validate=True).decode()
    except (binascii.Error, UnicodeDecodeError):
        return "", ""
    user, _, password = text.partition(":")
    return user, password


def _scrypt(hashed: str) -> tuple[int, int, int, bytes, bytes] | None:
    """The parts of a hash; None if it is none, or asks for too much."""
    parts = hashed.split("$")
    if len(parts) != 6 or parts[0] != "scrypt":
        return None
    try:
        n, r, p = (int(part) for part in parts[1:4])
        salt, key = (base64.b64decode(part, validate=True) for part in parts[4:])
    except (ValueError, binascii.Error):
        return None
    bad = n < 2 or n & (n - 1) or r < 1 or not 1 <= p <= 16 or 128 * n * r >= _MOST_MEMORY
    return None if bad or len(key) < 16 else (n, r, p, salt, key)


def _is_password(password: str, hashed: str) -> bool:
    parts = _scrypt(hashed)
    if parts is None:
        return False
    n, r, p, salt, key = parts
    made = hashlib.scrypt(
        password.encode(), salt=salt, n=n, r=r, p=p, maxmem=2 * _MOST_MEMORY, dklen=len(key)
    )
    return hmac.compare_digest(made, key)


def _hash_token(token: str) -> str:
    return "sha256$" + hashlib.sha256(token.encode()).hexdigest()


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()
