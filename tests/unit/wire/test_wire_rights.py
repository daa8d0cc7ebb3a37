"""Who lacks which right, and the command that grants it."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import pkcs12
from cryptography.x509.oid import NameOID

from heliograph.model import ClientSettings
from heliograph.wire.rights import denied, missing_right, principal

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"
FILE_PROVIDER = "org.apache.kafka.common.config.provider.FileConfigProvider"


def settings(*, providers=None, **properties):
    values = {"bootstrap.servers": "host1:9092, host2:9092"}
    values |= {key.replace("_", "."): value for key, value in properties.items()}
    return ClientSettings("A", values, providers or {})


def sasl(mechanism, jaas, **more):
    return settings(
        security_protocol="SASL_PLAINTEXT", sasl_mechanism=mechanism, sasl_jaas_config=jaas, **more
    )


def scram(user="alice"):
    return sasl("SCRAM-SHA-512", f'{SCRAM} required username="{user}" password="hunter2";')


def certificate(*parts, rdns=None):
    """A key and a certificate whose subject has these (oid, value) parts, in DER order."""
    made = rdns or [
        x509.RelativeDistinguishedName([x509.NameAttribute(oid, value)]) for oid, value in parts
    ]
    name = x509.Name(made)
    key = ec.generate_private_key(ec.SECP256R1())
    now = datetime.datetime(2026, 1, 1, tzinfo=datetime.UTC)
    builder = x509.CertificateBuilder(name, name, key.public_key(), 1, now, now)
    return key, builder.sign(key, hashes.SHA256())


def ssl(parts):
    _, made = certificate(*parts)
    return settings(security_protocol="SSL", ssl_keystore_certificate_chain=pem(made))


def pem(made):
    return made.public_bytes(serialization.Encoding.PEM).decode()


def test_a_topic():
    assert missing_right(settings(), "DescribeConfigs", "topic", "orders") == (
        "User:ANONYMOUS may not DescribeConfigs topic orders on cluster A; grant it with:"
        " kafka-acls.sh --bootstrap-server host1:9092 --add --allow-principal User:ANONYMOUS"
        " --operation DescribeConfigs --topic orders"
    )


def test_a_group_over_sasl_where_the_command_needs_a_login_too():
    assert missing_right(scram(), "Read", "group", "g") == (
        "User:alice may not Read group g on cluster A; grant it with:"
        " kafka-acls.sh --bootstrap-server host1:9092 --command-config admin.properties --add"
        " --allow-principal User:alice --operation Read --group g"
    )


def test_the_cluster_itself_has_no_name():
    text = missing_right(scram(), "Alter", "cluster")
    # Almost an admin's right: that is said wherever it is suggested.
    assert text.startswith("User:alice may not Alter cluster A; grant it (only if you must: ")
    assert "whoever has it can give itself every other right) with: kafka-acls.sh" in text
    assert text.endswith(" --operation Alter --cluster")


def test_names_are_quoted_for_the_shell():
    text = missing_right(scram("al ice; rm"), "Read", "group", "a group's name")
    assert "--allow-principal 'User:al ice; rm'" in text
    assert text.endswith("""--group 'a group'"'"'s name'""")


def test_the_user_of_plain_and_of_scram():
    assert principal(scram()) == "User:alice"
    plain = sasl("PLAIN", f'{PLAIN} required username="bob" password="hunter2";')
    assert principal(plain) == "User:bob"


def test_templates_are_resolved_and_secrets_are_not_shown(tmp_path):
    secret = tmp_path / "login.properties"
    secret.write_text("user=carol\npassword=hunter2\n")
    providers = {"file": {"class": FILE_PROVIDER, "allowed.paths": str(tmp_path)}}
    jaas = (
        f'{SCRAM} required username="${{file:{secret}:user}}"'
        f' password="${{file:{secret}:password}}";'
    )
    text = missing_right(sasl("SCRAM-SHA-256", jaas, providers=providers), "Read", "topic", "t")
    assert text.startswith("User:carol may not")
    assert "hunter2" not in text


def test_a_secret_that_cannot_be_read_does_not_hide_the_denial():
    jaas = f'{SCRAM} required username="${{file:/nowhere:user}}" password="x";'
    text = missing_right(sasl("SCRAM-SHA-256", jaas), "Read", "topic", "t")
    assert text.startswith("the principal of our client of cluster A may not Read topic t")
    assert "--allow-principal User:NAME" in text


def test_tokens():
    unsecured = sasl("OAUTHBEARER", f'{OAUTH} required unsecuredLoginStringClaim_sub="dora";')
    assert principal(unsecured) == "User:dora"
    jaas = f'{OAUTH} required clientId="mirror" clientSecret="hunter2";'
    fetched = sasl("OAUTHBEARER", jaas)
    assert principal(fetched) == "the principal of the OAuth token"
    assert "hunter2" not in missing_right(fetched, "Read", "topic", "t")


def test_tls_without_a_certificate_of_ours():
    assert principal(settings(security_protocol="SSL")) == "User:ANONYMOUS"


# What Java 17's X500Principal.getName() says of the same names.
@pytest.mark.parametrize(
    ("parts", "java"),
    [
        (
            [
                (NameOID.COUNTRY_NAME, "DE"),
                (NameOID.ORGANIZATION_NAME, "Example, Inc. = #1"),
                (NameOID.ORGANIZATIONAL_UNIT_NAME, "Data"),
                (NameOID.COMMON_NAME, "heliograph"),
            ],
            r"CN=heliograph,OU=Data,O=Example\, Inc. \= \#1,C=DE",
        ),
        (
            [
                (NameOID.STREET_ADDRESS, "st"),
                (NameOID.LOCALITY_NAME, "l"),
                (NameOID.STATE_OR_PROVINCE_NAME, "s"),
                (NameOID.USER_ID, "u"),
                (NameOID.DOMAIN_COMPONENT, "de"),
                (NameOID.EMAIL_ADDRESS, "a@b.c"),
            ],
            "1.2.840.113549.1.9.1=#16056140622e63,DC=de,UID=u,ST=s,L=l,STREET=st",
        ),
        ([(NameOID.COMMON_NAME, "Jürgen  Groß")], "CN=Jürgen  Groß"),
        ([(NameOID.COMMON_NAME, r"#x;<y>\z")], r"CN=\#x\;\<y\>\\z"),
    ],
)
def test_the_name_in_a_certificate_as_java_writes_it(parts, java):
    assert principal(ssl(parts)) == f"User:{java}"


def test_a_name_part_with_two_attributes():
    both = x509.RelativeDistinguishedName([
        x509.NameAttribute(NameOID.COMMON_NAME, "x"),
        x509.NameAttribute(NameOID.ORGANIZATIONAL_UNIT_NAME, "y"),
    ])  # fmt: skip
    _, made = certificate(rdns=[both])
    chain = settings(security_protocol="SSL", ssl_keystore_certificate_chain=pem(made))
    assert principal(chain) == "User:CN=x+OU=y"


def test_a_long_attribute_that_java_writes_in_hex():
    long = principal(ssl([(NameOID.TITLE, "t" * 60), (NameOID.EMAIL_ADDRESS, "a@" + "b" * 200)]))
    assert long.startswith("User:1.2.840.113549.1.9.1=#1681ca6140" + "62" * 200 + ",2.5.4.12=#0c3c")


@pytest.mark.parametrize("named", [True, False])
def test_stores_that_python_can_read(tmp_path, named):
    key, made = certificate((NameOID.COMMON_NAME, "mirror"))
    locked = serialization.BestAvailableEncryption(b"hunter2")
    store = tmp_path / "client.p12"
    store.write_bytes(pkcs12.serialize_key_and_certificates(b"c", key, made, None, locked))
    text = tmp_path / "client.pem"
    text.write_text(pem(made))
    for kind, path in (("PKCS12", store), ("PEM", text)):
        more = {"ssl_keystore_type": kind} if named else {}
        found = settings(
            security_protocol="SSL",
            ssl_keystore_location=str(path),
            ssl_keystore_password="hunter2",
            **more,
        )
        assert principal(found) == "User:CN=mirror"


def test_a_store_that_only_java_can_read(tmp_path):
    found = settings(security_protocol="SSL", ssl_keystore_location=str(tmp_path / "client.jks"))
    text = missing_right(found, "Write", "topic", "t")
    assert text.startswith("the principal of the client's certificate may not Write topic t")


@pytest.mark.parametrize(("code", "answer"), [(29, True), (30, True), (31, True), (3, False)])
def test_which_errors_are_denials(code, answer):
    assert denied(code) is answer
