"""The host at the address is not PostgreSQL, does not answer or fails TLS verification. Each case has its own
message."""

import asyncio
import datetime as dt
import http.server
import os
import socket
import threading
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.postgres import Address, Cluster, home
from tests.support.server import watchword
from watchword import setting_values as values
from watchword.basics.errors import OperatorError
from watchword.database.postgres.maintenance import is_migrated
from watchword.database.urls import PostgresUrl

SECRET = "hunter2-is-no-password"


def migrate(url: str, folder: Path, seconds: int = 20) -> tuple[int, str]:
    """The exit code and stderr of `db migrate` with this database timeout."""
    key = folder / "m.key"
    key.touch(0o600)
    key.write_bytes(b64encode(os.urandom(32)))
    env = {
        "WATCHWORD_DATABASE_URL": url,
        "WATCHWORD_DATABASE_TIMEOUT": str(seconds),
        "WATCHWORD_MASTER_KEY_FILE": str(key),
        "HOME": str(folder),
    }
    done = watchword("db", "migrate", "--data-dir", str(folder / "data"), env=env)
    assert done.stderr.count("\n") == (done.returncode != 0)
    assert SECRET not in done.stderr
    return done.returncode, done.stderr


@pytest.fixture
def web_server() -> Iterator[str]:
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), http.server.SimpleHTTPRequestHandler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("query", ["", "?sslmode=disable"])
def test_web_server_is_rejected(web_server: str, query: str, tmp_path: Path) -> None:
    code, said = migrate(f"postgresql://ww:{SECRET}@{web_server}/ww{query}", tmp_path, seconds=1)
    assert code == 1
    assert f"{web_server} did not answer in time as PostgreSQL does." in said


def test_silent_server_times_out(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        where = f"127.0.0.1:{silent.getsockname()[1]}"
        code, said = migrate(f"postgresql://ww:{SECRET}@{where}/ww", tmp_path, seconds=1)
    assert code == 1
    assert f"{where} did not answer in time as PostgreSQL does." in said


@given(
    st.lists(
        st.binary(max_size=40) | st.sampled_from([b"N", b"S", b"R\0\0\0\x08\0\0\0\0", b"Z\0\0\0\x05I"]), max_size=4
    )
)
@example([b"N", b"E\0\0\0\x04"])
@example([b"N", b"R\0\0\0\x08\0\0\0\x07"])
@example([b"N", b"R\0\0\0\x08\0\0\0\0", b"Z\0\0\0\x05I"])
@example([b"\xff" * 40])
def test_invalid_server_response_is_reported_in_one_line(answers: list[bytes]) -> None:
    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in answers:
            await reader.read(1)
            writer.write(answer)
        writer.close()

    async def connect() -> None:
        server = await asyncio.start_server(respond, "127.0.0.1", 0)
        async with server:
            port = server.sockets[0].getsockname()[1]
            place = values.database(f"postgresql://ww:{SECRET}@127.0.0.1:{port}/ww")
            assert isinstance(place, PostgresUrl)
            with pytest.raises(OperatorError) as caught:
                await is_migrated(place)
            assert str(caught.value).count(". ") >= 1
            assert SECRET not in str(caught.value)
            assert "went wrong here" not in str(caught.value)

    asyncio.run(connect())


@pytest.mark.parametrize("mode", ["require", "verify-ca", "verify-full"])
def test_server_without_tls_is_rejected_if_tls_is_required(
    postgres: Address, durable_cluster: Cluster, mode: str, tmp_path: Path
) -> None:
    query = f"sslmode={mode}&sslrootcert={durable_cluster.folder / 'ca.pem'}"
    code, said = migrate(postgres.url(password=SECRET, query=query), tmp_path)
    assert code == 1
    assert "does not offer TLS, which sslmode in WATCHWORD_DATABASE_URL asks for. Turn on its setting ssl" in said


def test_certificate_of_a_trusted_ca_is_accepted(durable_cluster: Cluster, tmp_path: Path) -> None:
    with home(durable_cluster, tmp_path) as made:
        query = f"sslmode=verify-full&sslrootcert={durable_cluster.folder / 'ca.pem'}"
        env = made.env | {"WATCHWORD_DATABASE_URL": durable_cluster.url(query=query)}
        done = watchword("db", "migrate", "--data-dir", str(tmp_path / "data"), env=env)
        assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize(
    ("host", "query", "problem"),
    [
        ("localhost", "sslmode=verify-full&sslrootcert={ca}", "has no TLS certificate that we trust. Check sslmode"),
        ("127.0.0.1", "sslmode=verify-full&sslrootcert={other}", "has no TLS certificate that we trust. Check sslmode"),
        ("127.0.0.1", "sslmode=verify-ca&sslrootcert={other}", "has no TLS certificate that we trust. Check sslmode"),
        ("127.0.0.1", "sslmode=verify-full", "Add sslrootcert=FILE to WATCHWORD_DATABASE_URL, the certificates"),
        ("127.0.0.1", "sslmode=verify-full&sslrootcert={none}", "a certificate or key that cannot be used ({none})"),
        ("127.0.0.1", "sslmode=require&sslcert={key}", "a certificate or key that cannot be used ({key})"),
    ],
)  # fmt: skip
def test_unverified_server_is_rejected(
    durable_cluster: Cluster, host: str, query: str, problem: str, tmp_path: Path
) -> None:
    names = {
        "ca": str(durable_cluster.folder / "ca.pem"),
        "other": str(tmp_path / "other.pem"),
        "none": str(tmp_path / "none.pem"),
        "key": __file__,
    }
    _write_another_ca(tmp_path / "other.pem")
    url = f"postgresql://ww:{SECRET}@{host}:{durable_cluster.port}/ww?{query.format(**names)}"
    code, said = migrate(url, tmp_path)
    assert code == 1
    assert problem.format(**names) in said


def _write_another_ca(file: Path) -> None:
    key, name = ec.generate_private_key(ec.SECP256R1()), x509.Name([])
    now = dt.datetime.now(dt.UTC)
    builder = x509.CertificateBuilder().subject_name(name).issuer_name(name).public_key(key.public_key())
    made = builder.serial_number(1).not_valid_before(now).not_valid_after(now + dt.timedelta(days=1))
    file.write_bytes(made.sign(key, SHA256()).public_bytes(Encoding.PEM))
