"""What to say when a broker denies something: who lacks which right, and how to grant it.

Reads settings and, for TLS, the client's certificate; talks to nobody. Runs wherever a denial is
met: the driver and executors.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives.serialization import pkcs12

from heliograph.config.jaas import parse_jaas
from heliograph.config.providers import resolve
from heliograph.errors import ConfigError
from heliograph.model import ClientSettings
from heliograph.shown import shown

__all__ = [
    "ANONYMOUS",
    "client_certificate",
    "denied",
    "grant_command",
    "missing_right",
    "principal",
    "reason",
]

#: Who a broker takes us for on a listener where nobody says a name.
ANONYMOUS = "User:ANONYMOUS"
#: TOPIC_, GROUP_, CLUSTER_ and TRANSACTIONAL_ID_AUTHORIZATION_FAILED.
_DENIED = frozenset({29, 30, 31, 53})
#: The attributes that RFC 2253 gives names to; Java writes all others as numbers.
_SHORT_NAMES = {
    "2.5.4.3": "CN",
    "2.5.4.6": "C",
    "2.5.4.7": "L",
    "2.5.4.8": "ST",
    "2.5.4.9": "STREET",
    "2.5.4.10": "O",
    "2.5.4.11": "OU",
    "0.9.2342.19200300.100.1.1": "UID",
    "0.9.2342.19200300.100.1.25": "DC",
}
#: More than RFC 2253 asks for, as Java does it.
_TO_ESCAPE = re.compile(r'[,=+<>#;"\\]')


def denied(code: int) -> bool:
    """Whether a broker's error code says that a right is missing."""
    return code in _DENIED


def reason(
    settings: ClientSettings,
    code: int,
    operation: str,
    topic: str,
    message: str | None = None,
) -> str | None:
    """What to add to an error code that a broker gave for a topic: if it is a denial, the right.

    Otherwise ``message``, which is what the broker itself says, if anything.
    """
    return missing_right(settings, operation, "topic", topic) if denied(code) else message


#: Said wherever Alter on a cluster is suggested.
NEAR_ADMIN = "only if you must: whoever has it can give itself every other right"


def missing_right(
    settings: ClientSettings, operation: str, resource_type: str, resource_name: str = ""
) -> str:
    """Who may not do what, and the command that changes it.

    Args:
        settings: of the client that was denied.
        operation: as kafka-acls.sh spells it, e.g. ``DescribeConfigs``.
        resource_type: an option of kafka-acls.sh: ``topic``, ``group``, ``transactional-id``, or
            ``cluster``.
        resource_name: of the topic or group; a cluster has none.
    """
    who = shown(principal(settings))
    name = f" {shlex.quote(shown(resource_name))}" if resource_type != "cluster" else ""
    what = f"{resource_type}{name} on cluster" if name else "cluster"
    much = f" ({NEAR_ADMIN})" if (operation, resource_type) == ("Alter", "cluster") else ""
    command = grant_command(settings, [operation], resource_type, [resource_name])
    return f"{who} may not {operation} {what} {settings.alias}; grant it{much} with: {command}"


def grant_command(
    settings: ClientSettings,
    operations: Sequence[str],
    resource_type: str,
    resource_names: Sequence[str],
) -> str:
    """The command that lets a client do all of these with each of these; as `missing_right`."""
    who = shown(principal(settings))
    grantee = shlex.quote(who) if who.startswith("User:") else "User:NAME"
    secured = settings.properties.get("security.protocol", "PLAINTEXT").upper() != "PLAINTEXT"
    login = " --command-config admin.properties" if secured else ""
    allowed = "".join(f" --operation {operation}" for operation in operations)
    names = [
        f" {shlex.quote(shown(n))}" if resource_type != "cluster" else "" for n in resource_names
    ]
    return (
        f"kafka-acls.sh --bootstrap-server {_bootstrap(settings)}{login} --add"
        f" --allow-principal {grantee}{allowed}"
        + "".join(f" --{resource_type}{name}" for name in names)
    )


def principal(settings: ClientSettings) -> str:
    """Who a client is to the brokers, e.g. ``User:alice``; in words if only they can tell.

    As Kafka's own principal builder names it; ``ssl.principal.mapping.rules`` of a broker may
    change a certificate's name.
    """
    try:
        values = {k: resolve(v, settings.providers) for k, v in settings.properties.items()}
        protocol = values.get("security.protocol", "PLAINTEXT").strip().upper()
        if protocol.startswith("SASL_"):
            return _login(values)
        if protocol == "SSL":
            return _certificate(values)
    except (ConfigError, OSError, ValueError):
        # Whoever asks has an error to tell already.
        return f"the principal of our client of cluster {settings.alias}"
    return ANONYMOUS


def _login(values: Mapping[str, str]) -> str:
    options = parse_jaas(values.get("sasl.jaas.config", "")).options
    if values.get("sasl.mechanism", "").strip().upper() == "OAUTHBEARER":
        subject = options.get("unsecuredLoginStringClaim_sub")
        return f"User:{subject}" if subject else "the principal of the OAuth token"
    return f"User:{options['username']}"


def client_certificate(settings: ClientSettings) -> x509.Certificate | None:
    """The certificate that a client shows to brokers; None without one, or in a JKS store.

    Raises ConfigError, OSError or ValueError if it cannot be read.
    """
    values = {k: resolve(v, settings.providers) for k, v in settings.properties.items()}
    tls = values.get("security.protocol", "PLAINTEXT").strip().upper().endswith("SSL")
    return _own(values) if tls else None


def _certificate(values: Mapping[str, str]) -> str:
    if not (values.get("ssl.keystore.certificate.chain") or values.get("ssl.keystore.location")):
        return ANONYMOUS
    own = _own(values)
    # A JKS store can be read by Java only, which takes too long for a message.
    return (
        "the principal of the client's certificate" if own is None else f"User:{_name(own.subject)}"
    )


def _own(values: Mapping[str, str]) -> x509.Certificate | None:
    location = values.get("ssl.keystore.location", "")
    pem = values.get("ssl.keystore.certificate.chain", "")
    kind = values.get("ssl.keystore.type", "").strip().upper()
    if not pem and (kind == "PEM" or (not kind and Path(location).suffix in {".pem", ".crt"})):
        pem = Path(location).read_text()
    if pem:
        return x509.load_pem_x509_certificates(pem.encode())[0]
    if kind == "PKCS12" or (not kind and Path(location).suffix == ".p12"):
        password = values.get("ssl.keystore.password", "").encode()
        _, own, _ = pkcs12.load_key_and_certificates(Path(location).read_bytes(), password)
        return own
    return None


def _name(subject: x509.Name) -> str:
    """The name as Java's X500Principal.getName (RFC 2253) has it, last part first."""
    return ",".join("+".join(map(_attribute, rdn)) for rdn in reversed(subject.rdns))


def _attribute(attribute: x509.NameAttribute[str | bytes]) -> str:
    oid = attribute.oid.dotted_string
    short = _SHORT_NAMES.get(oid)
    if short is None or not isinstance(attribute.value, str):
        return f"{oid}=#{_encoded_value(attribute).hex()}"
    return short + "=" + _TO_ESCAPE.sub(r"\\\g<0>", attribute.value)


def _encoded_value(attribute: x509.NameAttribute[str | bytes]) -> bytes:
    """The value in DER: what is left of the encoded attribute behind its type."""
    encoded = x509.Name([attribute]).public_bytes()
    for _ in range(3):  # the name, its one part, the attribute
        encoded, _ = _element(encoded)
    _, value = _element(encoded)
    return value


def _element(encoded: bytes) -> tuple[bytes, bytes]:
    """What the first DER element in ``encoded`` holds, and what follows it."""
    length, start = encoded[1], 2
    if length & 0x80:
        start += length & 0x7F
        length = int.from_bytes(encoded[2:start])
    return encoded[start : start + length], encoded[start + length :]


def _bootstrap(settings: ClientSettings) -> str:
    try:
        servers = resolve(settings.bootstrap_servers, settings.providers)
    except ConfigError:
        return "host:port"
    return servers.split(",")[0].strip() or "host:port"
