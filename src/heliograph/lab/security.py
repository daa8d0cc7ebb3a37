"""TLS and SASL for a lab cluster's client listener: one self-signed certificate, one user.

With an authorizer there are more users, who may do nothing before somebody grants it.
"""

from __future__ import annotations

import subprocess
from dataclasses import dataclass
from pathlib import Path

from heliograph.errors import LabError
from heliograph.jvm.java import find_java

__all__ = ["GUESTS", "PASSWORD", "USER", "Security"]

# Not secrets: the lab listens on loopback only, and its files say the same.
USER, PASSWORD = "alice", "alice-secret"
GUESTS = ("bob", "carol", "dave")
"""Users of clusters with an authorizer who have no right to anything at first."""
_STORE_PASSWORD = "lab-secret"  # noqa: S105
_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "OAUTHBEARER": "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule",
}


def _password(user: str) -> str:
    return f"{user}-secret"


def _jaas(mechanism: str, options: str) -> str:
    return f"{_MODULES[mechanism]} required{' ' if options else ''}{options};"


@dataclass(frozen=True, slots=True)
class Security:
    """The protocol of listener CLIENT, the folder with its certificate, and whether rights count.

    With ``authorizer``, alice may do everything and ``GUESTS`` nothing. The brokers may do
    everything too: among themselves they have no name, and clients cannot come without one.
    """

    protocol: str
    folder: Path
    authorizer: bool = False

    @classmethod
    def create(cls, protocol: str | None, folder: Path, authorizer: bool = False) -> Security:
        """Checks the protocol's name and makes the certificate when it needs one."""
        security = cls(protocol or "PLAINTEXT", folder, authorizer)
        if security.protocol not in {"PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"}:
            hint = "Expected SSL, SASL_PLAINTEXT, SASL_SSL or nothing."
            raise LabError("lab.bad-security", f"Unknown security protocol {protocol!r}.", hint)
        if authorizer and not security.sasl:
            hint = "Use security protocol SASL_PLAINTEXT or SASL_SSL."
            raise LabError("lab.bad-security", "An authorizer needs clients with names.", hint)
        if security.tls and not security.certificate.exists():
            security._make_certificate()
        return security

    @property
    def tls(self) -> bool:
        """Whether clients speak TLS."""
        return self.protocol.endswith("SSL")

    @property
    def sasl(self) -> bool:
        """Whether clients authenticate with SASL."""
        return self.protocol.startswith("SASL")

    @property
    def users(self) -> tuple[str, ...]:
        """Who may log in; a password is the name and ``-secret``."""
        return (USER, *GUESTS) if self.authorizer else (USER,)

    @property
    def certificate(self) -> Path:
        """The brokers' certificate in PEM, which is also what clients have to trust."""
        return self.folder / "broker.pem"

    def broker_properties(self) -> dict[str, str]:
        """Broker keys for listener CLIENT."""
        properties: dict[str, str] = {}
        prefix = "listener.name.client"
        if self.tls:
            properties[f"{prefix}.ssl.keystore.type"] = "PKCS12"
            properties[f"{prefix}.ssl.keystore.location"] = str(self.folder / "broker.p12")
            properties[f"{prefix}.ssl.keystore.password"] = _STORE_PASSWORD
            properties[f"{prefix}.ssl.key.password"] = _STORE_PASSWORD
        if self.sasl:
            options = {
                "PLAIN": " ".join(f'user_{u}="{_password(u)}"' for u in self.users),
                "OAUTHBEARER": f'unsecuredLoginStringClaim_sub="{USER}"',
            }
            properties["sasl.enabled.mechanisms"] = ",".join(_MODULES)
            for mechanism in _MODULES:
                key = f"{prefix}.{mechanism.lower()}.sasl.jaas.config"
                properties[key] = _jaas(mechanism, options.get(mechanism, ""))
        if self.authorizer:
            properties["authorizer.class.name"] = _AUTHORIZER
            properties["super.users"] = f"User:{USER};User:ANONYMOUS"
        return properties

    def client_properties(self, mechanism: str, user: str = USER) -> dict[str, str]:
        """Client keys: everything but bootstrap.servers."""
        properties = {"security.protocol": self.protocol}
        if self.tls:
            properties["ssl.truststore.type"] = "PEM"
            properties["ssl.truststore.location"] = str(self.certificate)
        if self.sasl:
            login = f'username="{user}" password="{_password(user)}"'
            if mechanism == "OAUTHBEARER":
                login = f'unsecuredLoginStringClaim_sub="{user}"'
            properties["sasl.mechanism"] = mechanism
            properties["sasl.jaas.config"] = _jaas(mechanism, login)
        return properties

    def format_arguments(self) -> list[str]:
        """Arguments of StorageTool that create the SCRAM credentials."""
        if not self.sasl:
            return []
        return [
            part
            for mechanism in _MODULES if mechanism.startswith("SCRAM")
            for user in self.users
            for part in ("--add-scram", f"{mechanism}=[name={user},password={_password(user)}]")
        ]  # fmt: skip

    def _make_certificate(self) -> None:
        keytool = find_java().resolve().parent / "keytool"
        store = ["-keystore", str(self.folder / "broker.p12"), "-storetype", "PKCS12"]
        store += ["-storepass", _STORE_PASSWORD, "-alias", "broker"]
        make = ["-genkeypair", "-keyalg", "EC", "-groupname", "secp256r1", "-validity", "3650"]
        make += ["-dname", "CN=localhost", "-ext", "SAN=dns:localhost,ip:127.0.0.1"]
        # OpenSSL 3 (Python's) accepts a self-signed leaf as its own issuer only when it is a CA.
        make += ["-ext", "bc:c=ca:true"]
        export = ["-exportcert", "-rfc", "-file", str(self.certificate)]
        for action in (make, export):
            done = subprocess.run(
                [str(keytool), *action, *store], capture_output=True, text=True, check=False
            )
            if done.returncode != 0:
                raise LabError("lab.keytool", f"{keytool} failed: {done.stdout}{done.stderr}")
