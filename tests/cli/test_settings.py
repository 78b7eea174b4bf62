"""Settings: an invalid value or an unknown name stops the start and is named."""

from pathlib import Path

import pytest

from tests.cli.in_process import watchword
from watchword.database.migrations import latest
from watchword.database.urls import PostgresUrl
from watchword.settings import TABLE, SettingsError, load

BAD = [
    ("WATCHWORD_PORT", "0"), ("WATCHWORD_PORT", "http"), ("WATCHWORD_PORT", "٣"), ("WATCHWORD_WORKERS", "-1"),
    ("WATCHWORD_HOST", "example.org"), ("WATCHWORD_PUBLIC_URL", "tokens.example.org"),
    ("WATCHWORD_PUBLIC_URL", "https://u:p@x"), ("WATCHWORD_DATABASE_URL", "mysql://x"),
    ("WATCHWORD_DATABASE_URL", "postgresql://x"), ("WATCHWORD_ROOT_ACTOR", "admin"),
    ("WATCHWORD_ROOT_ACTOR", "urn:li:corpuser:__system"),
    ("WATCHWORD_ROOT_ACTOR", "urn:li:corpuser:service_root"), ("WATCHWORD_LOCAL_MODE", "maybe"),
    ("WATCHWORD_TRUSTED_PEERS", "10.0.0.0/33"), ("WATCHWORD_TRUSTED_PEERS", "unix"),
    ("WATCHWORD_TRUSTED_PROXIES", "proxy"), ("WATCHWORD_ACTOR_HEADERS", "X Actor"),
    ("WATCHWORD_ACTOR_HEADERS", "Authorization"),
    ("WATCHWORD_ALLOWED_DURATIONS", "ONE_MINUTE"), ("WATCHWORD_ALLOWED_DURATIONS", ""),
    ("WATCHWORD_ALLOW_NO_EXPIRY", "2"), ("WATCHWORD_MAX_LIVE_TOKENS", "0"), ("WATCHWORD_LOG_LEVEL", "loud"),
    ("WATCHWORD_METRICS_ADDRESS", "127.0.0.1"), ("WATCHWORD_METRICS_ADDRESS", "127.0.0.1:0"),
    ("WATCHWORD_METRICS_ADDRESS", "::1:9090"), ("WATCHWORD_METRICS_ADDRESS", "[::1]"),
    ("WATCHWORD_METRICS_ADDRESS", "example.org:9090"), ("WATCHWORD_METRICS_ADDRESS", "127.0.0.1:8080"),
    *(("WATCHWORD_EVENT_STREAM", value) for value in (
        "stderr", "events.jsonl", "/var/log/", "syslog:", "syslog:host", "syslog:host:0", "syslog:::1:514",
        "syslog+tls:host:6514", "syslog+tcp:/dev/log", "syslog:a b:514", "syslog:[host]:514",
    )),
    ("WATCHWORD_SMTP_URL", "mail.example.org"), ("WATCHWORD_SMTP_URL", "smtp://mail.example.org/x"),
    ("WATCHWORD_SMTP_URL", "smtp+insecure://u:p@mail.example.org"), ("WATCHWORD_SMTP_URL", "smtps://u@mail.example.org"),
    ("WATCHWORD_SMTP_FROM", "a@b\nBcc: c@d"), ("WATCHWORD_SMTP_FROM", "w@example.org"),
    ("WATCHWORD_MAIL_TEMPLATE", "all@example.org"), ("WATCHWORD_MAIL_KINDS", "spam"),
    ("WATCHWORD_EXPIRY_NOTICE_DAYS", "30,0"), ("WATCHWORD_EXPIRY_NOTICE_DAYS", "soon"),
    ("WATCHWORD_TRUSTED_GROUP", "0"), ("WATCHWORD_TRUSTED_GROUP", "staff"), ("WATCHWORD_TRUSTED_GROUP", "999999"),
    ("WATCHWORD_ACCESS_LOG", "some"), ("WATCHWORD_TLS_CERT", "/x.pem"), ("WATCHWORD_DATA_DIR", ""),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value"), BAD)
def test_bad_value_names_its_setting(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name):
        load({}, {name: value})


def test_bad_value_stops_the_start_with_one_line() -> None:
    done = watchword("serve", env={"WATCHWORD_PORT": "many"})
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "watchword: WATCHWORD_PORT must be a whole number from 1 to 65535.\n"


def test_unknown_name_stops_the_start() -> None:
    done = watchword("serve", env={"WATCHWORD_PROT": "8080"})
    assert done.returncode == 2
    assert "WATCHWORD_PROT is not a setting" in done.stderr


def test_variables_of_container_platforms_are_ignored() -> None:
    injected = {
        "WATCHWORD_PORT": "tcp://10.0.0.1:8080",
        "WATCHWORD_SERVICE_HOST": "10.0.0.1",
        "WATCHWORD_SERVICE_PORT_HTTP": "8080",
        "WATCHWORD_PORT_8080_TCP_ADDR": "10.0.0.1",
    }
    assert load({}, injected).port == 8080


def test_variables_of_services_with_a_longer_name_are_ignored() -> None:
    """As for `watchword-postgresql` and `watchword-metrics` in the same namespace."""
    injected = {
        "WATCHWORD_POSTGRESQL_SERVICE_HOST": "10.0.0.2",
        "WATCHWORD_POSTGRESQL_SERVICE_PORT": "5432",
        "WATCHWORD_POSTGRESQL_SERVICE_PORT_TCP_POSTGRESQL": "5432",
        "WATCHWORD_POSTGRESQL_PORT": "tcp://10.0.0.2:5432",
        "WATCHWORD_POSTGRESQL_PORT_5432_TCP": "tcp://10.0.0.2:5432",
        "WATCHWORD_POSTGRESQL_PORT_5432_TCP_PROTO": "tcp",
        "WATCHWORD_POSTGRESQL_PORT_5432_TCP_PORT": "5432",
        "WATCHWORD_POSTGRESQL_PORT_5432_TCP_ADDR": "10.0.0.2",
        "WATCHWORD_METRICS_PORT": "udp://10.0.0.3:9090",
    }
    assert load({}, injected) == load({}, {})


@pytest.mark.parametrize("name", ["WATCHWORD_METRICS_PORT", "WATCHWORD_POSTGRESQL_PORT", "WATCHWORD_SERVICE_HOSTS"])
def test_misspelled_name_is_no_variable_of_a_service(name: str) -> None:
    with pytest.raises(SettingsError, match=f"{name} is not a setting"):
        load({}, {name: "9090"})


def test_names_of_clients_and_tests_are_left_alone() -> None:
    others = {"WATCHWORD_URL": "x", "WATCHWORD_TOKEN": "y", "WATCHWORD_TEST_STRICT": "1"}
    assert load({}, others) == load({}, {})


def test_flag_wins_over_the_environment() -> None:
    assert load({"port": "1234"}, {"WATCHWORD_PORT": "999"}).port == 1234


def test_durations_are_named_in_any_case() -> None:
    allowed = load({"allowed_durations": "one_hour,One_Day"}, {}).allowed_durations
    assert [duration.name for duration in allowed] == ["ONE_HOUR", "ONE_DAY"]


def test_every_setting_has_help_and_a_default_that_parses() -> None:
    settings = load({}, {})
    for setting in TABLE:
        assert setting.help.endswith(".")
        assert hasattr(settings, setting.name)


@pytest.mark.parametrize(
    ("environment", "on"),
    [
        ({}, True),
        ({"WATCHWORD_HOST": "localhost"}, True),
        ({"WATCHWORD_HOST": "::1"}, True),
        ({"WATCHWORD_HOST": "127.0.0.2"}, True),
        ({"WATCHWORD_HOST": "0.0.0.0"}, False),
        ({"WATCHWORD_HOST": "unix:/run/w.sock"}, False),
        ({"WATCHWORD_PUBLIC_URL": "https://tokens.example.org"}, False),
        ({"WATCHWORD_TRUSTED_PROXIES": "10.0.0.0/8"}, False),
        ({"WATCHWORD_LOCAL_MODE": "off"}, False),
        ({"WATCHWORD_LOCAL_MODE": "on", "WATCHWORD_PUBLIC_URL": "https://tokens.example.org"}, True),
    ],
)
def test_local_mode_is_on_only_where_no_proxy_can_stand_between(environment: dict[str, str], on: bool) -> None:
    assert load({}, environment).local_mode_on is on


def test_local_mode_cannot_be_forced_beyond_loopback() -> None:
    with pytest.raises(SettingsError, match="WATCHWORD_LOCAL_MODE"):
        load({}, {"WATCHWORD_LOCAL_MODE": "on", "WATCHWORD_HOST": "0.0.0.0"})


def test_store_can_be_named_by_url(tmp_path: Path) -> None:
    file = tmp_path / "x" / "my.db"
    done = watchword(
        "db", "migrate", "--data-dir", str(tmp_path / "d"), env={"WATCHWORD_DATABASE_URL": f"sqlite:///{file}"}
    )
    assert done.returncode == 0
    assert file.exists()


def test_store_is_a_file_whatever_its_name(tmp_path: Path) -> None:
    url = {"WATCHWORD_DATABASE_URL": "sqlite:///:memory:"}
    for expected in (
        f"Created the database with schema {latest('sqlite')}.\n",
        f"The database has schema {latest('sqlite')}.\n",
    ):
        done = watchword("db", "migrate", "--data-dir", str(tmp_path / "d"), env=url, cwd=tmp_path)
        assert (done.returncode, done.stdout) == (0, expected)
    assert (tmp_path / ":memory:").is_file()


def test_every_secret_can_be_read_from_a_file(tmp_path: Path) -> None:
    url, index, key, secret, smtp = (tmp_path / name for name in ("url", "index", "key", "secret", "smtp"))
    smtp.write_text("smtp://u:p%40ss@mail.example.org\n")
    secret.write_text("s3cr3t\n")
    url.write_text("postgresql://u:p%40ss@db.example.org/w\n")
    index.write_text("http://search.example.org:9200\n")
    key.write_text("a2V5\n")
    files = {
        "WATCHWORD_DATABASE_URL_FILE": str(url),
        "WATCHWORD_INDEX_URL_FILE": str(index),
        "WATCHWORD_INDEX_API_KEY_FILE": str(key),
        "WATCHWORD_OIDC_CLIENT_SECRET_FILE": str(secret),
        "WATCHWORD_DATAHUB_SALT_FILE": str(secret),
        "WATCHWORD_DATAHUB_URL_FILE": str(url),
        "WATCHWORD_SMTP_URL_FILE": str(smtp),
    }
    assert set(files) == {setting.file_variable for setting in TABLE if setting.secret}
    read = load({}, files | {"WATCHWORD_MASTER_KEY_FILE": "/k", "WATCHWORD_SMTP_FROM": "w@example.org"})
    assert read.smtp_url is not None
    assert read.smtp_url.password is not None
    assert read.smtp_url.password.reveal() == "p@ss"
    assert (read.smtp_url.port, "p@ss" in repr(read.smtp_url)) == (587, False)
    assert isinstance(read.database_url, PostgresUrl)
    assert read.database_url.password is not None
    assert read.database_url.password.reveal() == "p@ss"
    assert read.index_api_key is not None
    assert read.index_api_key.reveal() == "a2V5"
    assert read.oidc_client_secret is not None
    assert read.oidc_client_secret.reveal() == "s3cr3t"
    assert str(read.datahub_url) == "postgresql://u@db.example.org:5432/w"
    assert read.datahub_salt is not None
    assert read.datahub_salt.reveal() == b"s3cr3t"
    assert read.index_url == load({}, {"WATCHWORD_INDEX_URL": "http://search.example.org:9200"}).index_url


def test_secret_is_not_given_twice(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    file.write_text("http://a:9200")
    given = {"WATCHWORD_INDEX_URL": "http://b:9200", "WATCHWORD_INDEX_URL_FILE": str(file)}
    with pytest.raises(
        SettingsError, match="WATCHWORD_INDEX_URL and WATCHWORD_INDEX_URL_FILE must not be set together"
    ):
        load({}, given)


@pytest.mark.parametrize("content", [None, b"\xff\xfe", b""], ids=["missing", "no text", "empty"])
def test_file_without_its_secret_stops_the_start_and_none_of_it_is_reported(
    content: bytes | None, tmp_path: Path
) -> None:
    file = tmp_path / "secret"
    if content is not None:
        file.write_bytes(content)
    done = watchword("serve", env={"WATCHWORD_DATABASE_URL_FILE": str(file)})
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("watchword: WATCHWORD_DATABASE_URL_FILE must ")
    assert done.stderr.count("\n") == 1


def test_only_a_secret_has_a_file_of_its_own() -> None:
    with pytest.raises(SettingsError, match="WATCHWORD_PORT_FILE is not a setting"):
        load({}, {"WATCHWORD_PORT_FILE": "/port"})


def test_service_account_cannot_be_the_root_actor(tmp_path: Path) -> None:
    """Otherwise a policy file that declares it would let managers of accounts create tokens of the root actor."""
    file = tmp_path / "policies.yaml"
    file.write_text("accounts:\n  - {id: root, name: Root}\n")
    folder = tmp_path / "data"
    done = watchword(
        *("serve", "--data-dir", str(folder), "--policy-file", str(file)),
        *("--root-actor", "urn:li:corpuser:service_root"),
    )
    assert done.returncode != 0
    assert "root-actor" in done.stderr.replace("ROOT_ACTOR", "root-actor")
    assert "not of a service account" in done.stderr
    assert not folder.exists()
