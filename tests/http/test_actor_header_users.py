"""The actor header is accepted only from processes of the server's own user."""

import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from tests.support.ports import free_port
from tests.support.server import ADMIN, Server
from tests.support.store_file import stored
from tests.support.system import need_program, need_root
from tests.support.waiting import SECONDS, until
from tests.support.wire import JSON_TYPE, head, receive
from watchword.http.own_user import SocketAddress, socket_owner

OTHER = "www-data"
"""A user on every Debian; nginx's workers run as it."""
ME = '{"query": "{ me { corpUser { urn } } }"}'
TCP_TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))

# nginx as Debian configures it: a root master and www-data workers. Only `proxy_pass` is set.
NGINX = """
user www-data;
daemon off;
pid {folder}/nginx.pid;
error_log {folder}/error.log;
events {{ }}
http {{
  access_log off;
  server {{ listen 127.0.0.1:{bare}; location / {{ proxy_pass http://127.0.0.1:{port}; }} }}
  server {{
    listen 127.0.0.1:{newer};
    location / {{ proxy_pass http://127.0.0.1:{port}; proxy_http_version 1.1; proxy_set_header Connection ""; }}
  }}
}}
"""

# A server that may not open AF_NETLINK, as in a unit that forbids it: set seccomp, then exec the server.
WITHOUT_NETLINK = """
import ctypes, os, socket, struct, sys
libc = ctypes.CDLL(None, use_errno=True)
nr_socket = {"x86_64": 41, "aarch64": 198}[os.uname().machine]
steps = [(0x20, 0, 0, 0), (0x15, 0, 3, nr_socket), (0x20, 0, 0, 16), (0x15, 0, 1, socket.AF_NETLINK),
         (0x06, 0, 0, 0x50000 | 97), (0x06, 0, 0, 0x7FFF0000)]
code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *step) for step in steps))
program = ctypes.create_string_buffer(struct.pack("HxxxxxxP", len(steps), ctypes.addressof(code)))
assert libc.prctl(38, 1, 0, 0, 0) == 0 and libc.prctl(22, 2, ctypes.byref(program)) == 0
os.execv(sys.argv[1], sys.argv[1:])
"""


def curl(server: Server, *words: str, user: str | None = None, port: int | None = None, path: str = "") -> Any:
    """Run `curl` as this user; return the status and the content of the response."""
    found = need_program("curl", "curl")
    prefix = [] if user is None else [need_program("runuser", "util-linux"), "-u", user, "--"]
    url = f"http://127.0.0.1:{port or server.port}{path or '/api/graphql'}"
    done = subprocess.run(
        [*prefix, found, "-sS", "-w", "\n%{http_code}", "-H", JSON_TYPE, *words, url],
        capture_output=True, text=True, timeout=SECONDS, check=True, cwd="/",
    )  # fmt: skip
    content, _, status = done.stdout.rpartition("\n")
    return int(status), json.loads(content)


def send_claim(server: Server, *words: str, query: str = ME, **how: Any) -> Any:
    return curl(server, "-H", f"X-Service-Actor: {ADMIN}", "-d", query, *words, **how)


def rejection_message(answer: Any) -> str:
    """Return the message of a 401 to an actor header. It states the cause and the fix, nothing else."""
    status, content = answer
    (error,) = content["errors"]
    assert (status, error["extensions"]["reason"]) == (401, "missing_credential"), content
    message: str = error["message"]
    assert message.startswith("x-service-actor is not accepted: ")
    assert message.endswith("Send a token: Authorization: Bearer <token>.")
    return message


def create_body(name: str) -> str:
    wanted = f'type: PERSONAL, actorUrn: "{ADMIN}", duration: ONE_HOUR, name: "{name}"'
    return json.dumps({"query": f"mutation {{ createAccessToken(input: {{{wanted}}}) {{ accessToken }} }}"})


@contextmanager
def nginx(server: Server, folder: Path) -> Iterator[tuple[int, int]]:
    """Yield the ports of nginx: with `proxy_pass` alone, and with HTTP/1.1 to the server."""
    bare, newer = free_port(), free_port()
    conf = folder / "nginx.conf"
    conf.write_text(NGINX.format(folder=folder, port=server.port, bare=bare, newer=newer))
    process = subprocess.Popen([need_program("nginx", "nginx-light"), "-c", str(conf)], start_new_session=True)
    try:
        until(lambda: all(_listens(port) for port in (bare, newer)) or process.poll() is not None, "nginx listens")
        assert process.poll() is None
        yield bare, newer
    finally:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def test_curl_of_the_same_user_is_accepted(server: Server) -> None:
    assert send_claim(server) == (200, {"data": {"me": {"corpUser": {"urn": ADMIN}}}})


def test_bare_proxy_pass_of_nginx_on_the_same_host_does_not_make_its_clients_root(
    server: Server, tmp_path: Path
) -> None:
    need_root("starts nginx, whose workers run as another user")
    before = stored(server)
    with nginx(server, tmp_path) as (bare, newer):
        # nginx sets Host to a loopback name and adds no header, whatever the client sends.
        outside = ("-H", "Host: tokens.example.org")
        assert "HTTP/1.1" in rejection_message(send_claim(server, *outside, port=bare, query=create_body("by-nginx")))
        message = rejection_message(send_claim(server, *outside, port=newer, query=create_body("by-nginx")))
        assert f"a process of user {OTHER} (uid 33); the server runs as user root (uid 0)" in message
        assert stored(server) == before
        # A bearer token passes through nginx.
        token = server.create(ADMIN)["accessToken"]
        for port in (bare, newer):
            assert curl(server, "-H", f"Authorization: Bearer {token}", "-d", ME, port=port)[0] == 200


def test_another_user_is_rejected_by_graphql_and_sign_in(server: Server) -> None:
    need_root("acts as another user")
    assert f"a process of user {OTHER} (uid 33)" in rejection_message(send_claim(server, user=OTHER))
    own = ("-H", "X-Watchword-Console: 1", "-H", f"Origin: {server.url}")
    chosen = (*own, "-d", json.dumps({"actor": ADMIN}))
    status, content = curl(server, *chosen, path="/session", user=OTHER)
    assert (status, content["error"]["reason"]) == (403, "foreign_request")
    assert f"user {OTHER} (uid 33)" in content["error"]["message"]
    told = ("-G", *own)
    shown = [curl(server, *told, path="/session", user=user)[1] for user in (OTHER, None)]
    assert [one["localMode"] for one in shown] == [False, True]
    assert [one["dataDir"] is None for one in shown] == [True, False], "only its own user learns the data folder"
    assert curl(server, *chosen, path="/session")[0] == 200


def test_command_line_of_another_user_says_which_user_to_run_it_as(server: Server) -> None:
    need_root("acts as another user")
    runuser = need_program("runuser", "util-linux")
    words = [sys.executable, "-m", "watchword", "whoami", "--as", ADMIN, "--url", server.url]
    command = [runuser, "-u", OTHER, "--", "env", "HOME=/tmp", *words]
    done = subprocess.run(command, capture_output=True, text=True, timeout=SECONDS, cwd="/", check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "--as needs a server in local mode and the user that it runs as. Or set WATCHWORD_TOKEN." in done.stderr
    assert "local mode alone" not in done.stderr


def test_users_without_a_uid_are_rejected(server: Server) -> None:
    """The overflow uid, which is also `nobody`, stands for unmapped users."""
    need_root("acts as another user")
    assert "cannot identify (uid 65534)" in rejection_message(send_claim(server, user="nobody"))


def test_another_user_that_sends_a_mutation_and_closes_is_rejected(make_server: Callable[..., Server]) -> None:
    """For a socket without a process the kernel reports uid 0, and the server runs as root here."""
    need_root("acts as another user")
    server = make_server("--access-log", "all")
    before = stored(server)
    request = server.folder / "request"
    body = create_body("closed").encode()
    headers = [f"X-Service-Actor: {ADMIN}", JSON_TYPE, "X-Request-Id: closed"]
    request.write_bytes(head(server, "POST", "/api/graphql", headers, len(body)) + body)
    script = f"exec 3<>/dev/tcp/127.0.0.1/{server.port}; cat >&3; exec 3>&-"
    (worker,) = server.workers()
    worker.suspend()  # so that it finds the connection already closed
    try:
        with request.open("rb") as sent:
            words = [need_program("runuser", "util-linux"), "-u", OTHER, "--", "bash", "-c", script]
            subprocess.run(words, stdin=sent, check=True, timeout=SECONDS, cwd="/")
    finally:
        worker.resume()
    until(lambda: status_of(server, "closed") is not None, "the request is in the log")
    assert status_of(server, "closed") == 401
    assert stored(server) == before


def status_of(server: Server, request_id: str) -> int | None:
    """Return the logged status of this request."""
    lines = [json.loads(line) for line in server.err.read_text().splitlines(keepends=True) if line.endswith("\n")]
    statuses = {line["request_id"]: int(line["status"]) for line in lines if line["event"] == "request"}
    return statuses.get(request_id)


@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::ffff:127.0.0.1")])
def test_client_process_is_found_for_each_address_family(
    server: Server, family: socket.AddressFamily, address: str
) -> None:
    headers = [f"X-Service-Actor: {ADMIN}", JSON_TYPE]
    with closing(socket.socket(family)) as connection:
        connection.settimeout(SECONDS)
        connection.connect((address, server.port))
        connection.sendall(head(server, "POST", "/api/graphql", headers, len(ME)) + ME.encode())
        assert receive(connection).status == 200


def test_server_that_cannot_look_up_the_user_rejects_the_header(make_server: Callable[..., Server]) -> None:
    server = make_server(prefix=(sys.executable, "-c", WITHOUT_NETLINK))
    assert "cannot look up which user's process connected" in rejection_message(send_claim(server))


@pytest.mark.parametrize(
    ("listening", "calling", "address"),
    [
        (socket.AF_INET, socket.AF_INET, "127.0.0.1"),
        (socket.AF_INET6, socket.AF_INET6, "::1"),
        (socket.AF_INET, socket.AF_INET6, "127.0.0.1"),
    ],
)
def test_socket_owner_matches_the_kernel_table(
    listening: socket.AddressFamily, calling: socket.AddressFamily, address: str
) -> None:
    with closing(socket.socket(listening)) as listener, closing(socket.socket(calling)) as client:
        listener.bind((address, 0))
        listener.listen()
        ours = SocketAddress.parse(f"[{address}]:{listener.getsockname()[1]}")
        client.connect((f"::ffff:{address}" if calling is not listening else address, ours.port))
        accepted, peer = listener.accept()
        theirs = SocketAddress.parse(f"[{address}]:{peer[1]}")
        inode = os.fstat(client.fileno()).st_ino
        rows = [line.split() for table in TCP_TABLES for line in table.read_text().splitlines()]
        assert [row[7] for row in rows if row[9] == str(inode)] == [str(os.geteuid())]
        assert socket_owner(theirs, ours) == os.geteuid()
        # Not the listener, a missing connection or a half-closed one.
        assert socket_owner(ours, theirs._replace(port=1)) is None
        assert socket_owner(theirs, ours._replace(port=1)) is None
        client.shutdown(socket.SHUT_WR)
        assert socket_owner(theirs, ours) is None
        accepted.close()
