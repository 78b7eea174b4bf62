"""Forged requests: a page of another origin sends them from a browser that is signed in."""

import json
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import Thread
from typing import Any

import pytest

from tests.console.conftest import Windows
from tests.support.console import Console, Person
from tests.support.ports import free_port
from tests.support.server import GENERATE
from tests.support.store_file import look, stored
from tests.support.waiting import until

PAGE = """<!doctype html><title>A page of another site</title><body>
<form id="form" method="post" enctype="text/plain" target="frame">
<input></form>
<iframe name="frame"></iframe>"""


CREATE = """mutation { createAccessToken(input: {type: PERSONAL, actorUrn: "%s", duration: ONE_HOUR, name: "forged"})
  { accessToken } }"""
SUBMIT = """([url, text]) => { form.action = url; form.elements[0].name = text.slice(0, -1) + ', "a';
  form.elements[0].value = '": ""}'; form.submit() }"""


def forged_body(person: Person) -> str:
    """Return a body that both addresses can parse: it creates a token and a session."""
    return json.dumps({"query": CREATE % person.urn, "token": person.token})


class _ForeignPageHandler(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(PAGE.encode())

    def log_message(self, *_: Any) -> None:
        """Log nothing."""


@pytest.fixture(scope="module")
def foreign_page() -> Iterator[str]:
    """Serve a page on another port of this machine: another origin, but the same site, so cookies are sent."""
    server = ThreadingHTTPServer(("127.0.0.1", free_port()), _ForeignPageHandler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


ASK = """async ([url, method, mode, headers, body]) => {
  try {
    const answer = await fetch(url, {method, mode, headers, body, credentials: "include"});
    return [answer.type, answer.type === "opaque" ? null : await answer.text()];
  } catch (error) { return ["refused by the browser", String(error)]; } }"""


@pytest.mark.parametrize("mode", ["cors", "no-cors"])
@pytest.mark.parametrize("headers", [{}, {"X-Watchword-Console": "1", "Content-Type": "application/json"}])
@pytest.mark.parametrize(("path", "method"), [("/api/graphql", "POST"), ("/session", "POST"), ("/session", "GET")])
def test_cross_origin_script_reads_and_changes_nothing(
    console: Console, window: Windows, foreign_page: str, path: str, method: str, headers: dict[str, str], mode: str
) -> None:
    alice = console.person("alice", GENERATE)
    opened = window(alice)
    opened.watch.allow("")
    page = opened.context.new_page()
    page.goto(foreign_page)
    sent = {name: value for name, value in headers.items() if mode == "cors" or name == "Content-Type"}
    body = forged_body(alice) if method == "POST" else None
    before = stored(console.server)
    kind, told = page.evaluate(ASK, [console.url + path, method, mode, sent, body])
    assert kind in ("refused by the browser", "opaque"), told
    assert alice.urn not in (told or "")
    assert stored(console.server) == before


def test_cross_origin_form_is_rejected(console: Console, window: Windows, foreign_page: str) -> None:
    alice = console.person("alice", GENERATE)
    opened = window(alice)
    opened.watch.allow("")
    page = opened.context.new_page()
    page.goto(foreign_page)
    before = stored(console.server)
    for path in ("/api/graphql", "/session"):
        with page.expect_response(console.url + path) as answered:
            page.evaluate(SUBMIT, [console.url + path, forged_body(alice)])
        assert json.loads(answered.value.request.post_data or "{}")["token"] == alice.token
        assert answered.value.status in (401, 403, 415), path
    assert stored(console.server) == before


def test_same_request_from_the_console_is_accepted(console: Console, window: Windows) -> None:
    """The control: the tests above reject the origin, not the request."""
    alice = console.person("alice", GENERATE)
    page = window(alice).open("/console/tokens")
    headers = {"X-Watchword-Console": "1", "Content-Type": "application/json"}
    _, told = page.evaluate(ASK, ["/api/graphql", "POST", "cors", headers, forged_body(alice)])
    assert '"accessToken":"' in told
    assert look(console.server, "SELECT count(*) FROM tokens WHERE owner_urn = ?", alice.urn) == [(1,)]


def test_console_pages_cannot_be_framed(console: Console, window: Windows, foreign_page: str) -> None:
    opened = window(console.person("alice", GENERATE))
    opened.watch.allow("")
    page = opened.context.new_page()
    page.goto(foreign_page)
    page.evaluate("(url) => { document.querySelector('iframe').src = url }", f"{console.url}/console/tokens")
    (frame,) = [frame for frame in page.frames if frame is not page.main_frame]

    def refused() -> bool:
        page.evaluate("() => 0")  # lets the browser report the frame's address
        return frame.url.startswith("chrome-error:")

    until(refused, "the frame shows that it was refused")
