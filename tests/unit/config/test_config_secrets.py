import pytest
from hypothesis import given
from hypothesis import strategies as st

from heliograph.config import is_secret, parse_jaas, redact
from heliograph.config.secrets import HIDDEN
from heliograph.errors import ConfigError

PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer.OAuthBearerLoginModule"


@pytest.mark.parametrize(
    "key",
    [
        "ssl.keystore.password", "A.ssl.key.password", "A.consumer.sasl.jaas.config",
        "ssl.keystore.key", "A->B.source.admin.ssl.truststore.password",
        "sasl.oauthbearer.client.credentials.client.secret", "A.sasl.jass.config", "no.such.key",
    ],
)  # fmt: skip
def test_secret_keys_are_hidden(key):
    assert is_secret(key)
    assert redact(key, "hunter2") == HIDDEN


@pytest.mark.parametrize(
    "key",
    ["topics", "A->B.topics", "A.bootstrap.servers", "ssl.keystore.location", "sasl.mechanism",
     "sasl.oauthbearer.token.endpoint.url", "ssl.keystore.certificate.chain"],
)  # fmt: skip
def test_other_keys_are_shown(key):
    assert redact(key, "x") == "x"


def test_a_template_is_shown_but_not_what_stands_beside_it():
    template = "${file:/etc/secrets/k.properties:pw}"
    assert redact("ssl.key.password", template) == template
    assert redact("ssl.key.password", template + "x") == HIDDEN


def test_a_password_inside_a_url_is_hidden():
    shown = redact("sasl.oauthbearer.token.endpoint.url", "https://u:hunter2@host/token")
    assert shown == f"https://{HIDDEN}@host/token"


@pytest.mark.parametrize(
    ("text", "module", "options"),
    [
        (f'{PLAIN} required username="a" password="b";', PLAIN, {"username": "a", "password": "b"}),
        (f"{SCRAM} REQUIRED username='a' password=b ;", SCRAM, {"username": "a", "password": "b"}),
        (
            f'{PLAIN}\n required\n username="a;=\\"" password="\\\\";  ',
            PLAIN,
            {"username": 'a;="', "password": "\\"},
        ),
        (f"{OAUTH} required;", OAUTH, {}),
    ],
)
def test_jaas_is_read_as_data(text, module, options):
    found = parse_jaas(text)
    assert (found.module, found.options) == (module, options)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "needs a login module"),
        ("com.sun.security.auth.module.JndiLoginModule required;", "JndiLoginModule is not"),
        ("com.sun.security.auth.module.LdapLoginModule required a=b;", "not an accepted"),
        ('PlainLoginModule required username="a" password="b";', "not an accepted"),
        (f'{PLAIN} required username="a" password="b"', "semicolon"),
        (f'{PLAIN} required username="a" password="b;', "not closed"),
        (f'{PLAIN} maybe username="a" password="b";', "must be one of required"),
        (f'{PLAIN} required username "a";', 'name="value"'),
        (f'{PLAIN} required username="a";', "password is missing"),
        (f'{PLAIN} required username="a" password="b"; {SCRAM} required;', "only one module"),
    ],
)
def test_other_jaas_is_refused(text, says):
    with pytest.raises(ConfigError, match=says):
        parse_jaas(text)


@given(st.text())
def test_jaas_never_fails_otherwise(text):
    try:
        parse_jaas(f"{PLAIN} required {text};")
    except ConfigError as error:
        assert error.code == "config.jaas"


def test_jaas_secrets_are_not_in_repr():
    assert "hunter2" not in repr(parse_jaas(f'{PLAIN} required username="a" password="hunter2";'))
