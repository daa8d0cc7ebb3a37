import pytest

from heliograph.config.providers import check_providers, read_providers, resolve
from heliograph.errors import ConfigError

PACKAGE = "org.apache.kafka.common.config.provider"


@pytest.fixture
def secrets(tmp_path):
    root = tmp_path / "secrets"
    root.mkdir()
    (root / "k.properties").write_text("pw=hunter2\nuser=ann\n")
    (root / "token").write_text("t0ken")
    (tmp_path / "outside").write_text("no")
    return root


@pytest.fixture
def providers(secrets):
    return read_providers(
        {
            "config.providers": "file, dir,env",
            "config.providers.file.class": f"{PACKAGE}.FileConfigProvider",
            "config.providers.file.param.allowed.paths": f"/nowhere,{secrets}",
            "config.providers.dir.class": f"{PACKAGE}.DirectoryConfigProvider",
            "config.providers.dir.param.allowed.paths": str(secrets),
            "config.providers.env.class": f"{PACKAGE}.EnvVarConfigProvider",
            "config.providers.env.param.allowlist.pattern": "KAFKA_.*",
        }
    )


def test_resolves_all_three_kinds(providers, secrets, monkeypatch):
    monkeypatch.setenv("KAFKA_X", "${env:KAFKA_X}")
    assert check_providers(providers) == []
    text = f"u=${{file:{secrets}/k.properties:user}} p=${{dir:{secrets}:token}} ${{env:KAFKA_X}} $x"
    assert resolve(text, providers) == "u=ann p=t0ken ${env:KAFKA_X} $x"


def test_text_without_templates_is_untouched():
    assert resolve("a$b${c}", {}) == "a$b${c}"


@pytest.mark.parametrize(
    ("template", "code"),
    [
        ("${vault:a:b}", "config.provider-unknown"),
        ("${file:ROOT/k.properties:nope}", "config.provider-key-missing"),
        ("${file:ROOT/missing:pw}", "config.provider-unreadable"),
        ("${file:ROOT:pw}", "config.provider-unreadable"),
        ("${file:ROOT/../outside:pw}", "config.provider-denied"),
        ("${file:ROOT/link:pw}", "config.provider-denied"),
        ("${file:k.properties:pw}", "config.provider-denied"),
        ("${dir:ROOT:../outside}", "config.provider-denied"),
        ("${dir:ROOT:..}", "config.provider-denied"),
        ("${dir:ROOT:link}", "config.provider-denied"),
        ("${dir:ROOT:loop}", "config.provider-unreadable"),
        ("${dir:ROOT:binary}", "config.provider-unreadable"),
        ("${env:HOME}", "config.provider-denied"),
        ("${env:XKAFKA_}", "config.provider-denied"),
        ("${env:KAFKA_UNSET_IN_TESTS}", "config.provider-key-missing"),
    ],
)
def test_what_may_not_be_read_is_an_error(template, code, providers, secrets):
    (secrets / "link").symlink_to(secrets.parent / "outside")
    (secrets / "loop").symlink_to(secrets / "loop")
    (secrets / "binary").write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigError) as caught:
        resolve(template.replace("ROOT", str(secrets)), providers)
    assert caught.value.code == code
    assert "hunter2" not in str(caught.value)


def test_a_link_that_stays_inside_is_followed(providers, secrets):
    (secrets / "link").symlink_to(secrets / "token")
    assert resolve(f"${{dir:{secrets}:link}}", providers) == "t0ken"


@pytest.mark.parametrize(
    ("name", "class_name", "line"),
    [
        ("file", "FileConfigProvider", "config.providers.file.param.allowed.paths="),
        ("d", "DirectoryConfigProvider", "config.providers.d.param.allowed.paths="),
        ("env", "EnvVarConfigProvider", "config.providers.env.param.allowlist.pattern="),
    ],
)
def test_a_missing_allow_list_says_which_line_to_add(name, class_name, line):
    providers = {name: {"class": f"{PACKAGE}.{class_name}"}}
    [(key, error)] = check_providers(providers)
    assert key == line.rstrip("=")
    assert line in error.hint
    with pytest.raises(ConfigError, match="reads nothing without it"):
        resolve(f"${{{name}:/a:b}}", providers)


@pytest.mark.parametrize("class_name", ["", "com.evil.Provider"])
def test_no_other_class_is_accepted(class_name):
    [(key, error)] = check_providers({"v": {"class": class_name}})
    assert key == "config.providers.v.class"
    assert error.code == "config.provider-class"
