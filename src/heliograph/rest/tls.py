"""TLS of the https listeners, from Kafka's ssl.* keys. Runs in the REST server."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path

from heliograph.errors import StartError
from heliograph.wire import tls as wire

__all__ = ["server_context"]


def server_context(values: Mapping[str, str]) -> ssl.SSLContext:
    """A context for a server; raises StartError if the settings cannot be used.

    The same stores as for clients of Kafka: PEM, PKCS12, JKS. Certificates of callers are checked
    against the truststore; without one, nobody's is valid.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    try:
        wire._choose_versions(context, values.get("ssl.enabled.protocols", ""))
        wire._choose_suites(context, values.get("ssl.cipher.suites", ""))
        wire._load_key(context, values)
        asked = values.get("ssl.client.auth", "none").lower()
        if asked in {"required", "requested"}:
            context.load_verify_locations(cadata=_trusted(values))
            required = asked == "required"
            context.verify_mode = ssl.CERT_REQUIRED if required else ssl.CERT_OPTIONAL
    except (ssl.SSLError, OSError, ValueError) as error:
        raise StartError(
            "rest.tls", f"https cannot be served: {error}", "check the listeners.https.ssl.* keys"
        ) from None
    return context


def _trusted(values: Mapping[str, str]) -> str:
    trusted = values.get("ssl.truststore.certificates", "")
    location = values.get("ssl.truststore.location")
    if location and not trusted:
        trusted = wire._truststore_pem(values, Path(location))
    if not trusted:
        raise ValueError("ssl.client.auth is set, and there is no ssl.truststore.location")
    return trusted
