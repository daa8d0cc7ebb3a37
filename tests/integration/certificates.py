"""Certificate authorities of the tests, and what they issue."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

STORE_PASSWORD = "lab-secret"
_DAY = timedelta(days=1)


def _name(text):
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


class Authority:
    """Signs certificates; ``pem`` is its own."""

    def __init__(self, name):
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._own = self._signed(name, self._key.public_key(), name, -_DAY, 10 * _DAY, ca=True)
        self.pem = self._own.public_bytes(serialization.Encoding.PEM).decode()

    def _signed(self, subject, public_key, issuer, since, until, *, ca=False, names=()):
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(_name(subject))
            .issuer_name(_name(issuer))
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now + since)
            .not_valid_after(now + until)
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256())

    def _issue(self, subject, until, names):
        key = ec.generate_private_key(ec.SECP256R1())
        issuer = self._own.subject.get_attributes_for_oid(NameOID.COMMON_NAME)[0].value
        since = min(-_DAY, until - _DAY)
        return key, self._signed(subject, key.public_key(), issuer, since, until, names=names)

    def broker_store(self, path, *, host="127.0.0.1", days=5):
        """A PKCS12 key store for a broker that is addressed as ``host``."""
        try:
            name = x509.IPAddress(ipaddress.ip_address(host))
        except ValueError:
            name = x509.DNSName(host)
        self._write_store(path, *self._issue("broker", days * _DAY, [name]))

    def client_store(self, path):
        """A PKCS12 key store for a client."""
        self._write_store(path, *self._issue("mirror", 5 * _DAY, []))

    def _write_store(self, path, key, certificate):
        encryption = serialization.BestAvailableEncryption(STORE_PASSWORD.encode())
        store = pkcs12.serialize_key_and_certificates(
            b"own", key, certificate, [self._own], encryption
        )
        path.write_bytes(store)

    def client_pem(self, path):
        """A key and its certificate for a client."""
        key, certificate = self._issue("mirror", 5 * _DAY, [])
        pem = key.private_bytes(
            serialization.Encoding.PEM,
            serialization.PrivateFormat.PKCS8,
            serialization.NoEncryption(),
        )
        path.write_bytes(pem + certificate.public_bytes(serialization.Encoding.PEM))
