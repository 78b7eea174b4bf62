"""`doctor` prints one line per check, with a fix, and changes nothing."""

import datetime as dt
import json
import re
import resource
import shutil
import socket
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256

from tests.support.disks import small_disk
from tests.support.ports import free_port
from tests.support.server import ADMIN, Server, watchword
from tests.support.store_file import change_store
from tests.support.story import BackupHistory
from tests.support.waiting import until

MakeServer = Callable[..., Server]
ABOUTS = [
    "settings",
    "data folder",
    "disk",
    "store",
    "keys",
    "clock",
    "index",
    "policy file",
    "port",
    "exposure",
    "open files",
]


def doctor(data_dir: Path, *flags: str, **how: Any) -> tuple[int, list[dict[str, str]]]:
    """Return the exit code and findings, on a free port unless the flags name one."""
    port = () if "--port" in flags or "WATCHWORD_PORT" in how.get("env", {}) else ("--port", str(free_port()))
    done = watchword("doctor", "--json", "--data-dir", str(data_dir), *port, *flags, **how)
    assert done.stderr == ""
    found: list[dict[str, str]] = json.loads(done.stdout)
    assert all(finding["fix"] for finding in found if finding["level"] != "ok")
    return done.returncode, found


def troubles(found: list[dict[str, str]]) -> list[tuple[str, str]]:
    return [(finding["level"], finding["about"]) for finding in found if finding["level"] != "ok"]


def said(found: list[dict[str, str]], about: str) -> str:
    return " / ".join(f"{f['level']} {f['what']} {f['fix'] or ''}" for f in found if f["about"] == about)


def state(folder: Path) -> dict[str, Any]:
    """Every file with its bytes, mode and time of change. Of SQLite's shared memory and the server's own counts of
    requests, only that they are there, and not the drafts of these, which come and go.
    """
    seen: dict[str, Any] = {}
    for path in sorted(path for path in folder.rglob("*") if path.suffix != ".draft"):
        status = path.stat()
        kept = path.read_bytes() if path.is_file() and not path.name.endswith(("-shm", ".counters", ".names")) else None
        seen[str(path)] = (status.st_mode, kept, None if kept is None else status.st_mtime_ns)
    return seen


def test_healthy_installation_that_is_stopped_is_all_ok_and_left_as_it_was(story: BackupHistory) -> None:
    before = state(story.server.folder)
    code, found = doctor(story.server.data_dir)
    assert (code, troubles(found)) == (0, [])
    assert [finding["about"] for finding in found] == ABOUTS
    assert state(story.server.folder) == before


def test_healthy_installation_that_runs_is_all_ok_and_left_as_it_was(story: BackupHistory) -> None:
    server = story.server.start()
    server.create(ADMIN)
    # The process of the index opens its file in its own time, a moment after the server answers: first the log, then
    # the memory it shares.
    until((server.data_dir / "index.db-shm").exists, "the index is open")

    def is_left_as_it_was() -> bool:
        before = state(server.data_dir)
        code, found = doctor(server.data_dir, "--port", str(server.port))
        assert (code, troubles(found)) == (0, [])
        assert f"answers at {server.url}" in said(found, "port")
        return state(server.data_dir) == before

    until(is_left_as_it_was, "doctor changes nothing while the service does not renew one of its leases")


def test_doctor_leaves_a_closed_index_unchanged(story: BackupHistory) -> None:
    """The state after a server was killed before it opened the index, and after a copy."""
    with closing(sqlite3.connect(story.server.data_dir / "index.db")) as index:
        index.execute("SELECT * FROM indices").fetchall()
    before = state(story.server.data_dir)
    assert [name for name in before if name.endswith(("-wal", "-shm"))] == []
    code, found = doctor(story.server.data_dir)
    assert (code, troubles(found)) == (0, [])
    assert "indices: 0" in said(found, "index")
    assert state(story.server.data_dir) == before


def test_doctor_accepts_the_files_of_a_killed_server(story: BackupHistory) -> None:
    story.server.start().create(ADMIN)
    story.server.kill()
    before = state(story.server.data_dir)
    code, found = doctor(story.server.data_dir)
    assert (code, troubles(found)) == (0, [])
    assert state(story.server.data_dir) == before
    assert f"tokens not revoked: {len(story.tokens) - 2 + 1}" in said(found, "store")


def test_each_finding_is_one_line_that_begins_with_its_level(story: BackupHistory) -> None:
    (story.server.data_dir / "watchword.db").chmod(0o644)
    done = story.server.command_line("doctor", "--host", "0.0.0.0", "--port", str(free_port()))
    assert done.returncode == 1
    lines = done.stdout.splitlines()
    assert {line.split()[0] for line in lines} == {"ok", "warn", "BAD"}
    assert all("Fix: " in line for line in lines if not line.startswith("ok"))


def test_before_the_first_start_it_warns_and_makes_nothing(tmp_path: Path) -> None:
    code, found = doctor(tmp_path / "none")
    assert code == 0
    assert troubles(found) == [("warn", "data folder"), ("warn", "store"), ("warn", "keys")]
    assert list(tmp_path.iterdir()) == []


def test_empty_folder_beside_a_named_server_is_said_once(server: Server, tmp_path: Path) -> None:
    code, found = doctor(tmp_path / "none", env={"WATCHWORD_URL": server.url})
    assert (code, troubles(found)) == (0, [("warn", "store")])
    said_of_store = said(found, "store")
    assert f"no store in {tmp_path / 'none'}; the server at WATCHWORD_URL, {server.url}, uses another" in said_of_store
    assert "first start" not in json.dumps(found)
    assert "clock" not in [finding["about"] for finding in found]
    assert list(tmp_path.iterdir()) == []


def test_address_that_differs_from_that_of_the_running_service_is_a_warning(server: Server) -> None:
    code, found = doctor(server.data_dir, "--port", str(server.port), "--public-url", "https://x.example")
    assert (code, troubles(found)) == (0, [("warn", "port")])
    assert f"issuer is {server.url}, and WATCHWORD_PUBLIC_URL is https://x.example" in said(found, "port")


def test_bad_and_unknown_settings_are_lines_beside_the_others(story: BackupHistory) -> None:
    env = {"WATCHWORD_PORT": "many", "WATCHWORD_PROT": "1", "WATCHWORD_TLS_CERT": "/x", "WATCHWORD_WORKERS": "2"}
    code, found = doctor(story.server.data_dir, env=env)
    assert code == 1
    assert [finding["about"] for finding in found if finding["about"] != "settings"] == ABOUTS[1:]
    lines = [finding["what"] for finding in found if finding["about"] == "settings"]
    assert [next(name for name in env if name in line) for line in lines] == [
        "WATCHWORD_PROT",
        "WATCHWORD_PORT",
        "WATCHWORD_TLS_CERT",
    ]


def no_folder(data: Path) -> None:
    shutil.rmtree(data)
    data.touch()


def other_key(data: Path) -> None:
    (data / "master.key").write_text("A" * 43 + "=\n")


def store_folder(data: Path) -> None:
    (data / "watchword.db").unlink()
    (data / "watchword.db").mkdir()


def linked_to_itself(data: Path) -> None:
    shutil.rmtree(data)
    data.symlink_to(data)


HARMS: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "a store that is a folder": (store_folder, "store", "Move it away"),
    "a folder that leads to itself": (linked_to_itself, "data folder", "--data-dir"),
    "a folder open to all": (lambda data: data.chmod(0o777), "data folder", "chmod 700"),
    "a folder that is a file": (no_folder, "data folder", "--data-dir"),
    "a store open to others": (lambda data: (data / "watchword.db").chmod(0o644), "store", "chmod 600"),
    "a damaged store": (lambda data: (data / "watchword.db").write_bytes(b"x" * 9000), "store", "db restore"),
    "an empty store": (lambda data: (data / "watchword.db").write_bytes(b""), "store", "db restore"),
    "a key open to others": (lambda data: (data / "master.key").chmod(0o640), "keys", "chmod 600"),
    "a lost key": (lambda data: (data / "master.key").unlink(), "keys", "Put the key of this store there"),
    "another key": (other_key, "keys", "another master key"),
}


@pytest.mark.parametrize("harm", HARMS)
def test_doctor_finds(story: BackupHistory, harm: str) -> None:
    spoil, about, words = HARMS[harm]
    spoil(story.server.data_dir)
    code, found = doctor(story.server.data_dir)
    assert code == 1
    assert ("BAD", about) in troubles(found)
    assert words in said(found, about)


@pytest.mark.parametrize("kept_in", ["sqlite", "postgres"])
def test_managers_who_gain_privileges_through_a_service_account_are_a_warning(
    make_server: MakeServer, request: pytest.FixtureRequest, kept_in: str
) -> None:
    env = request.getfixturevalue("database").env if kept_in == "postgres" else {}
    server = make_server("--local-mode", "on", env=env)

    def warnings() -> list[str]:
        return [f["what"] for f in doctor(server.data_dir, env=env)[1] if f["about"] == "policies"]

    def ask(query: str, **variables: Any) -> Any:
        (made,) = server.ask(query, variables, actor=ADMIN).values()
        return made

    new_account = 'mutation { createServiceAccount(input: {displayName: "a"}) { urn } }'
    named, member, plain = (ask(new_account)["urn"] for _ in range(3))
    group = ask('mutation { createGroup(input: {name: "g"}) }')
    add = "mutation ($input: GroupMembersInput!) { addGroupMembers(input: $input) }"
    ask(add, input={"groupUrn": group, "userUrns": [member]})
    manager, peer, ruler = (f"urn:li:corpuser:{name}" for name in ("manager", "peer", "ruler"))
    server.grant(manager, peer, ruler, privileges=("MANAGE_SERVICE_ACCOUNTS",))
    assert warnings() == []
    server.grant(named, peer, privileges=("VIEW_AUDIT_LOG",))
    server.grant(ruler, privileges=("MANAGE_POLICIES",))
    server.grant(groups=[group], privileges=("INTROSPECT_TOKENS",), scopes=("reports:read",))
    server.grant(peer, privileges=(), scopes=("reports:*",))
    gained = "{} can use {} with tokens of the service account {}"
    assert sorted(warnings()) == sorted(
        [
            gained.format(manager, "VIEW_AUDIT_LOG", named),
            gained.format(manager, "INTROSPECT_TOKENS, reports:read", member),
            gained.format(peer, "INTROSPECT_TOKENS", member),
        ]
    )
    assert plain not in str(warnings())


def test_policy_file_that_would_stop_a_start_is_bad(story: BackupHistory, tmp_path: Path) -> None:
    file = tmp_path / "policies.yaml"
    file.write_text("policies:\n  - id: x\n    nam: y\n")
    code, found = doctor(story.server.data_dir, "--policy-file", str(file))
    assert (code, troubles(found)) == (1, [("BAD", "policy file")])
    assert "line 3: policies[0] has no key 'nam'" in said(found, "policy file")
    file.write_text("policies: []\n")
    code, found = doctor(story.server.data_dir, "--policy-file", str(file))
    assert (code, troubles(found)) == (0, [])
    assert "declares 0 policies" in said(found, "policy file")


def test_finding_and_fix_are_two_sentences(story: BackupHistory, tmp_path: Path) -> None:
    file = tmp_path / "policies.yaml"
    file.write_text("policies:\n  - id: x\n    zz: y\n")
    flags = ("--data-dir", str(story.server.data_dir), "--port", str(free_port()), "--policy-file", str(file))
    done = watchword("doctor", *flags)
    assert re.search(r"^BAD  policy file: .*\w\. Fix: Correct the file", done.stdout, re.MULTILINE)
    file.write_text("policies:\n  - id: x\n    nam: y\n")
    done = watchword("doctor", *flags)
    assert re.search(r"^BAD  policy file: .* Did you mean name\? Fix: Correct the file", done.stdout, re.MULTILINE)


def test_store_of_an_entry_from_the_future_shows_a_clock_that_is_behind(story: BackupHistory) -> None:
    change_store(story.server, "UPDATE events SET at = at + 3600000")
    code, found = doctor(story.server.data_dir)
    assert (code, troubles(found)) == (1, [("BAD", "clock")])
    assert "newest event" in said(found, "clock")


def test_port_used_by_another_program_is_bad(story: BackupHistory) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        code, found = doctor(story.server.data_dir, "--port", str(taken.getsockname()[1]))
    assert (code, troubles(found)) == (1, [("BAD", "port")])
    assert "another program" in said(found, "port")


def test_endless_response_does_not_block_doctor(story: BackupHistory) -> None:
    with socket.create_server(("127.0.0.1", 0)) as stranger:
        talking = threading.Thread(target=drip, args=(stranger,), daemon=True)
        talking.start()
        code, found = doctor(story.server.data_dir, "--port", str(stranger.getsockname()[1]))
        talking.join()
    assert (code, troubles(found)) == (1, [("BAD", "port")])


def drip(stranger: socket.socket) -> None:
    with suppress(OSError), stranger.accept()[0] as connection:
        connection.sendall(b"HTTP/1.1 200 OK\r\nX: ")
        while True:
            connection.sendall(b"y")
            time.sleep(0.2)


def test_port_taken_by_the_watchword_of_another_folder_is_bad(story: BackupHistory, server: Server) -> None:
    code, found = doctor(story.server.data_dir, "--port", str(server.port))
    assert (code, troubles(found)) == (1, [("BAD", "port")])
    assert "another data folder" in said(found, "port")


def test_unix_socket_is_asked_too(make_server: MakeServer, tmp_path: Path) -> None:
    host = f"unix:{tmp_path}/w.sock"
    server = make_server("--host", host)
    code, found = doctor(server.data_dir, "--host", host)
    assert (code, troubles(found)) == (0, [])
    assert f"answers at {host}" in said(found, "port")
    (tmp_path / "w.sock").chmod(0o666)
    assert troubles(doctor(server.data_dir, "--host", host)[1]) == [("BAD", "port")]


def test_full_disk_is_bad(story: BackupHistory, tmp_path: Path) -> None:
    with small_disk(tmp_path / "small", megabytes=8) as disk:
        shutil.copytree(story.server.data_dir, disk / "d")
        code, found = doctor(disk / "d")
    assert (code, troubles(found)) == (1, [("BAD", "disk")])


def test_few_open_files_are_a_warning(story: BackupHistory) -> None:
    words = ["doctor", "--json", "--port", str(free_port()), "--data-dir", str(story.server.data_dir)]
    done = subprocess.run(
        [sys.executable, "-m", "watchword", *words],
        capture_output=True,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (512, 512)),
        check=False,
    )
    assert troubles(json.loads(done.stdout)) == [("warn", "open files")]


def test_public_address_without_tls_and_wide_trust_are_warnings(story: BackupHistory) -> None:
    code, found = doctor(story.server.data_dir, "--host", "0.0.0.0", "--trusted-peers", "0.0.0.0/0")
    assert (code, troubles(found)) == (0, [("warn", "exposure"), ("warn", "exposure")])


def certificate(folder: Path, name: str, days: int) -> tuple[str, str, str, str]:
    """Create a certificate that ends in this many days; return its flags."""
    key = ec.generate_private_key(ec.SECP256R1())
    named = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = dt.datetime.now(dt.UTC)
    made = (
        x509.CertificateBuilder(named, named, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(days=400))
        .not_valid_after(now + dt.timedelta(days=days))
        .sign(key, SHA256())
    )
    pem = serialization.Encoding.PEM
    secret = key.private_bytes(pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (folder / f"{name}.pem").write_bytes(made.public_bytes(pem))
    (folder / f"{name}.key").write_bytes(secret)
    (folder / f"{name}.key").chmod(0o600)
    return "--tls-cert", str(folder / f"{name}.pem"), "--tls-key", str(folder / f"{name}.key")


@pytest.mark.parametrize(("days", "level"), [(300, "ok"), (7, "warn"), (-1, "BAD")])
def test_certificate_is_judged_by_its_end(story: BackupHistory, tmp_path: Path, days: int, level: str) -> None:
    _, found = doctor(story.server.data_dir, *certificate(tmp_path, "c", days))
    assert [finding["level"] for finding in found if finding["about"] == "TLS"] == [level]


def test_certificate_and_a_key_that_do_not_belong_together_are_bad(story: BackupHistory, tmp_path: Path) -> None:
    one, other = certificate(tmp_path, "one", 300), certificate(tmp_path, "other", 300)
    code, found = doctor(story.server.data_dir, *one[:2], *other[2:])
    assert (code, troubles(found)) == (1, [("BAD", "TLS")])


def test_service_with_tls_is_asked_over_tls(make_server: MakeServer, tmp_path: Path) -> None:
    flags = certificate(tmp_path, "c", 300)
    server = make_server(*flags)
    code, found = doctor(server.data_dir, "--port", str(server.port), *flags)
    assert (code, troubles(found)) == (0, [])
    assert "answers at https://" in said(found, "port")
