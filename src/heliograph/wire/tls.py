"""The TLS context of a connection, from Kafka's ssl.* keys. Runs wherever a socket is opened.

Private keys are not written to a disk: what has to be converted goes through memory. Only a JKS
store passes through a file, encrypted with its own password, because keytool knows nothing else.
"""

from __future__ import annotations

import os
import ssl
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.serialization import pkcs12

from heliograph.wire.errors import AuthenticationFailed

__all__ = ["FILES", "certificates", "in_memory", "tls_context"]

#: Files whose contents are part of a context.
FILES = ("ssl.truststore.location", "ssl.keystore.location")
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
#: All that OpenSSL offers by default; Python cannot choose among them.
_SUITES_OF_1_3 = frozenset({
    "TLS_AES_256_GCM_SHA384", "TLS_CHACHA20_POLY1305_SHA256", "TLS_AES_128_GCM_SHA256",
})  # fmt: skip


def tls_context(values: Mapping[str, str], *, check_hostname: bool) -> ssl.SSLContext:
    """A context for clients; raises AuthenticationFailed if the settings cannot be used.

    With a truststore only its certificates are trusted, as in Kafka; without one the system's are.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = check_hostname
    try:
        _choose_versions(context, values.get("ssl.enabled.protocols", ""))
        _choose_suites(context, values.get("ssl.cipher.suites", ""))
        trusted = values.get("ssl.truststore.certificates")
        location = values.get("ssl.truststore.location")
        if location and not trusted:
            trusted = _truststore_pem(values, Path(location))
        if trusted:
            context.load_verify_locations(cadata=trusted)
        else:
            context.load_default_certs()
        _load_key(context, values)
    except (ssl.SSLError, OSError, ValueError) as error:
        raise AuthenticationFailed(f"the ssl.* settings cannot be used: {error}") from error
    return context


def certificates(values: Mapping[str, str], store: str) -> list[x509.Certificate]:
    """The certificates of the ``keystore`` or ``truststore`` that the settings name.

    Raises ValueError or OSError if they cannot be read.
    """
    inline = {"keystore": "ssl.keystore.certificate.chain",
              "truststore": "ssl.truststore.certificates"}[store]  # fmt: skip
    location = values.get(f"ssl.{store}.location")
    if text := values.get(inline):
        return x509.load_pem_x509_certificates(text.encode())
    if not location:
        return []
    kind = _store_type(values, f"ssl.{store}.type", Path(location))
    password = values.get(f"ssl.{store}.password", "")
    if kind == "PEM":
        return x509.load_pem_x509_certificates(Path(location).read_bytes())
    if store == "truststore":
        return x509.load_pem_x509_certificates(_truststore_pem(values, Path(location)).encode())
    pem = _keystore_pem(kind, Path(location), password, values.get("ssl.key.password"))
    return x509.load_pem_x509_certificates(pem)


def _listed(text: str) -> list[str]:
    return [part.strip() for part in text.split(",") if part.strip()]


def _choose_versions(context: ssl.SSLContext, text: str) -> None:
    """Those of ssl.enabled.protocols; older ones than TLS 1.2 are never used."""
    asked = _listed(text) or list(_VERSIONS)
    found = [_VERSIONS[name] for name in asked if name in _VERSIONS]
    if not found:
        raise ValueError(f"ssl.enabled.protocols={text} names neither {' nor '.join(_VERSIONS)}")
    context.minimum_version, context.maximum_version = min(found), max(found)


def _choose_suites(context: ssl.SSLContext, text: str) -> None:
    asked = _listed(text)
    if not asked:
        return
    newest = _SUITES_OF_1_3.intersection(asked)
    older = [name for name in asked if name not in _SUITES_OF_1_3]
    if newest and newest != _SUITES_OF_1_3 and context.maximum_version != _VERSIONS["TLSv1.2"]:
        raise ValueError(
            "ssl.cipher.suites names some suites of TLS 1.3 and not all, and Python cannot choose"
            f" among them: add {', '.join(sorted(_SUITES_OF_1_3 - newest))}, or leave all three out"
        )
    if not newest:
        context.maximum_version = _VERSIONS["TLSv1.2"]
    if not older:
        context.minimum_version = _VERSIONS["TLSv1.3"]
        return
    for name in older:
        try:
            context.set_ciphers(_openssl_name(name))
        except ssl.SSLError:
            raise ValueError(f"ssl.cipher.suites: OpenSSL here does not know {name}") from None
    context.set_ciphers(":".join(map(_openssl_name, older)))


def _openssl_name(name: str) -> str:
    """``TLS_ECDHE_RSA_WITH_AES_256_GCM_SHA384`` is ``ECDHE-RSA-AES256-GCM-SHA384`` there."""
    exchange, _, cipher = name.removeprefix("TLS_").partition("_WITH_")
    cipher = cipher.replace("AES_", "AES").replace("_CBC", "").replace("_", "-")
    cipher = cipher.replace("CHACHA20-POLY1305-SHA256", "CHACHA20-POLY1305")
    exchange = "" if exchange == "RSA" else exchange.replace("_", "-") + "-"
    return exchange + cipher


def _store_type(values: Mapping[str, str], key: str, location: Path) -> str:
    if key in values:
        return values[key].upper()
    suffix = location.suffix.lower()
    return "PEM" if suffix in {".pem", ".crt"} else "PKCS12" if suffix == ".p12" else "JKS"


def _truststore_pem(values: Mapping[str, str], location: Path) -> str:
    if _store_type(values, "ssl.truststore.type", location) == "PEM":
        return location.read_text()
    # keytool reads JKS and PKCS12 alike and ships with the Java that Spark needs anyway.
    password = values.get("ssl.truststore.password", "")
    return _keytool("-list", "-rfc", "-keystore", str(location), password=password)


def _load_key(context: ssl.SSLContext, values: Mapping[str, str]) -> None:
    key_password = values.get("ssl.key.password")
    location = Path(values.get("ssl.keystore.location", ""))
    if values.get("ssl.keystore.certificate.chain"):
        inline = (
            values.get("ssl.keystore.key", "") + "\n" + values["ssl.keystore.certificate.chain"]
        )
        pem = inline.encode()
    elif not values.get("ssl.keystore.location"):
        return
    elif _store_type(values, "ssl.keystore.type", location) == "PEM":
        context.load_cert_chain(location, password=key_password or None)
        return
    else:
        kind = _store_type(values, "ssl.keystore.type", location)
        pem = _keystore_pem(kind, location, values.get("ssl.keystore.password", ""), key_password)
        key_password = None
    with in_memory(pem) as path:
        context.load_cert_chain(path, password=key_password or None)


@contextmanager
def in_memory(content: bytes) -> Iterator[str]:
    """A path to something that OpenSSL can read and that is on no disk."""
    descriptor = os.memfd_create("heliograph-tls", os.MFD_CLOEXEC)
    try:
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)


def _keystore_pem(
    kind: str, location: Path, store_password: str, key_password: str | None
) -> bytes:
    content = location.read_bytes() if kind == "PKCS12" else _converted(location, store_password)
    password = (key_password or store_password).encode()
    key, cert, others = pkcs12.load_key_and_certificates(content, password)
    if key is None or cert is None:
        raise ValueError(f"{location} holds no private key with a certificate")
    pem = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )
    for certificate in (cert, *others):
        pem += certificate.public_bytes(serialization.Encoding.PEM)
    return pem


def _converted(location: Path, store_password: str) -> bytes:
    """A JKS store as PKCS12, under the same password."""
    with tempfile.TemporaryDirectory(prefix="heliograph-tls-") as folder:
        made = Path(folder, "key.p12")
        _keytool(
            *("-importkeystore", "-noprompt", "-srckeystore", str(location)),
            *("-destkeystore", str(made), "-deststoretype", "PKCS12"),
            *("-deststorepass:env", "HELIOGRAPH_STOREPASS"),
            password=store_password,
            flag="-srcstorepass",
        )
        return made.read_bytes()


def _keytool(*args: str, password: str, flag: str = "-storepass") -> str:
    # The password goes through the environment: arguments are visible to every user of the machine.
    environment = {**os.environ, "HELIOGRAPH_STOREPASS": password}
    try:
        done = subprocess.run(  # noqa: S603
            ["keytool", *args, f"{flag}:env", "HELIOGRAPH_STOREPASS"],  # noqa: S607
            env=environment, capture_output=True, text=True, timeout=60, check=False,
        )  # fmt: skip
    except FileNotFoundError:
        raise ValueError(
            "JKS and PKCS12 stores need Java's keytool on the PATH; or use ssl.*.type=PEM"
        ) from None
    if done.returncode:
        raise ValueError((done.stdout or done.stderr).strip().splitlines()[0])
    return done.stdout
