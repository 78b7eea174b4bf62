"""Requests forged from another origin: a page of somebody else's, in the browser of somebody who is signed in."""

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
from tests.support.store_file import last_event, stored
from tests.support.waiting import until

PAGE = """<!doctype html><title>A page of somebody else's</title><body>
<form id="form" method="post" enctype="text/plain" target="frame">
<input></form>
<iframe name="frame"></iframe>"""


CREATE = """mutation { createAccessToken(input: {type: PERSONAL, actorUrn: "%s", duration: ONE_HOUR, name: "forged"})
  { accessToken } }"""
SUBMIT = """([url, text]) => { form.action = url; form.elements[0].name = text.slice(0, -1) + ', "a';
  form.elements[0].value = '": ""}'; form.submit() }"""


def wanted(person: Person) -> str:
    """A body that both addresses could read: a token to be made, a session to be begun."""
    return json.dumps({"query": CREATE % person.urn, "token": person.token})


class _Elsewhere(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Type", "text/html")
        self.end_headers()
        self.wfile.write(PAGE.encode())

    def log_message(self, *_: Any) -> None:
        """Nothing is said on the terminal."""


@pytest.fixture(scope="module")
def elsewhere() -> Iterator[str]:
    """A page on another port of the same machine: another origin, and yet the same site, to which cookies go."""
    server = ThreadingHTTPServer(("127.0.0.1", free_port()), _Elsewhere)
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
def test_a_script_elsewhere_learns_and_changes_nothing(
    console: Console, window: Windows, elsewhere: str, path: str, method: str, headers: dict[str, str], mode: str
) -> None:
    alice = console.person("alice", GENERATE)
    opened = window(alice)
    opened.watch.allow("")
    page = opened.context.new_page()
    page.goto(elsewhere)
    sent = {name: value for name, value in headers.items() if mode == "cors" or name == "Content-Type"}
    body = wanted(alice) if method == "POST" else None
    before = stored(console.server)
    kind, told = page.evaluate(ASK, [console.url + path, method, mode, sent, body])
    assert kind in ("refused by the browser", "opaque"), told
    assert alice.urn not in (told or "")
    assert stored(console.server) == before


def test_a_form_elsewhere_is_refused(console: Console, window: Windows, elsewhere: str) -> None:
    alice = console.person("alice", GENERATE)
    opened = window(alice)
    opened.watch.allow("")
    page = opened.context.new_page()
    page.goto(elsewhere)
    before = stored(console.server)
    for path in ("/api/graphql", "/session"):
        with page.expect_response(console.url + path) as answered:
            page.evaluate(SUBMIT, [console.url + path, wanted(alice)])
        assert json.loads(answered.value.request.post_data or "{}")["token"] == alice.token
        assert answered.value.status in (401, 403, 415), path
    assert stored(console.server) == before


def test_the_same_request_from_our_own_page_is_answered(console: Console, window: Windows) -> None:
    """So that the refusals above are of the origin, not of the request."""
    alice = console.person("alice", GENERATE)
    page = window(alice).open("/console/tokens")
    headers = {"X-Watchword-Console": "1", "Content-Type": "application/json"}
    before = last_event(console.server)
    _, told = page.evaluate(ASK, ["/api/graphql", "POST", "cors", headers, wanted(alice)])
    assert '"accessToken":"' in told
    assert last_event(console.server) > before


def test_our_pages_are_shown_in_no_frame_elsewhere(console: Console, window: Windows, elsewhere: str) -> None:
    opened = window(console.person("alice", GENERATE))
    opened.watch.allow("")
    page = opened.context.new_page()
    page.goto(elsewhere)
    page.evaluate("(url) => { document.querySelector('iframe').src = url }", f"{console.url}/console/tokens")
    (frame,) = [frame for frame in page.frames if frame is not page.main_frame]

    def refused() -> bool:
        page.evaluate("() => 0")  # lets the browser tell where the frame is
        return frame.url.startswith("chrome-error:")

    until(refused, "the frame shows that it was refused")
