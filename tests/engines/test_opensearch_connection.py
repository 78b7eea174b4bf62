"""Credentials only in the header, verified certificates, no proxy."""

import ssl
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from tests.engines.harness import Run
from tests.support.breaker import Breaker
from tests.support.engine_nodes import engine_at
from tests.support.nodes import Client, SharedNodes
from tests.support.ports import free_port
from tests.support.system import need_program
from tests.support.waiting import until
from watchword.basics.errors import Fault, OperatorError, Reason
from watchword.basics.secret import Secret
from watchword.index.opensearch.engine import OpenSearchEngine


@pytest.fixture
def node(shared_nodes: SharedNodes) -> Client:
    return shared_nodes.of("opensearch-2")


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    folder = tmp_path_factory.mktemp("tls")
    cert, key = folder / "cert.pem", folder / "key.pem"
    openssl = need_program("openssl", "openssl")
    wanted = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=127.0.0.1"
    words = [*wanted.split(), "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)]
    subprocess.run([openssl, *words], check=True, capture_output=True)
    return cert, key


@pytest.fixture
def encrypted(node: Client, certificate: tuple[Path, Path]) -> Iterator[Breaker]:
    """The node behind a TLS proxy."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*certificate)
    with Breaker(node.url, context) as breaker:
        yield breaker


def answers_probe(engine: OpenSearchEngine, run: Run) -> bool:
    """On a busy machine an answer may take longer than the second that a probe waits."""
    try:
        return run(engine.probe()).startswith("opensearch 2.")
    except Fault as fault:
        if "CERTIFICATE" in (fault.cause or ""):
            raise
        return False


def test_user_and_password_are_sent_as_basic_authorization(node: Client, run: Run) -> None:
    with Breaker(node.url) as breaker:
        engine = engine_at(breaker.url, user="ün", password=Secret("pä:ss"))
        run(engine.probe())
        run(engine.close())
    assert [one.headers["authorization"] for one in breaker.seen] == ["Basic w7xuOnDDpDpzcw=="]


def test_api_key_is_sent_in_the_header(node: Client, run: Run) -> None:
    with Breaker(node.url) as breaker:
        engine = engine_at(breaker.url, api_key=Secret("a2V5"))
        run(engine.probe())
        run(engine.close())
    assert [one.headers["authorization"] for one in breaker.seen] == ["ApiKey a2V5"]


def test_no_credentials_are_sent_if_none_are_configured(node: Client, run: Run) -> None:
    with Breaker(node.url) as breaker:
        engine = engine_at(breaker.url)
        run(engine.probe())
        run(engine.close())
    assert "authorization" not in breaker.seen[0].headers


def test_two_kinds_of_credentials_are_rejected() -> None:
    with pytest.raises(ValueError, match="not both"):
        engine_at("http://127.0.0.1:9200", user="u", password=Secret("p"), api_key=Secret("k"))
    with pytest.raises(ValueError, match="together"):
        engine_at("http://127.0.0.1:9200", user="u")


@pytest.mark.parametrize("host", ["http://u:p@127.0.0.1:9200", "ftp://127.0.0.1", "127.0.0.1:9201", "http://a/?b"])
def test_host_with_a_password_is_rejected(host: str) -> None:
    with pytest.raises(ValueError, match="hosts must be addresses") as caught:
        engine_at(host)
    assert host not in str(caught.value)


def test_certificate_of_a_configured_ca_is_accepted(
    encrypted: Breaker, certificate: tuple[Path, Path], run: Run
) -> None:
    engine = engine_at(encrypted.url, ca_file=certificate[0])
    until(partial(answers_probe, engine, run), "the probe is answered")
    run(engine.close())


def test_unknown_certificate_is_rejected_before_anything_is_sent(encrypted: Breaker, run: Run) -> None:
    engine = engine_at(encrypted.url, user="u", password=Secret("p"))
    with pytest.raises(Fault) as caught:
        run(engine.resolve("a"))
    assert caught.value.reason is Reason.INDEX_UNAVAILABLE
    assert "CERTIFICATE_VERIFY_FAILED" in (caught.value.cause or "")
    assert encrypted.seen == []
    run(engine.close())


@pytest.mark.parametrize("content", [None, "no certificate"])
def test_ca_file_without_certificates_is_named(tmp_path: Path, content: str | None) -> None:
    file = tmp_path / "authorities.pem"
    if content is not None:
        file.write_text(content)
    with pytest.raises(OperatorError, match=r"authorities\.pem must be a file"):
        engine_at("https://127.0.0.1:9200", ca_file=file)


def test_certificate_is_not_checked_when_verification_is_off(encrypted: Breaker, run: Run) -> None:
    engine = engine_at(encrypted.url, verify_tls=False)
    until(partial(answers_probe, engine, run), "the probe is answered")
    run(engine.close())


def test_proxy_settings_of_the_environment_are_ignored(node: Client, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"):
        monkeypatch.setenv(name, f"http://127.0.0.1:{free_port()}")
    engine = engine_at(node.url)
    until(partial(answers_probe, engine, run), "the probe is answered")
    run(engine.close())
