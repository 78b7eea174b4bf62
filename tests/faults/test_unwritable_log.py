"""Responses are unchanged while the log cannot be written."""

from collections.abc import Callable

from tests.support.ports import free_port
from tests.support.server import ADMIN, Server


def test_error_response_is_unchanged_while_the_log_cannot_be_written(make_server: Callable[..., Server]) -> None:
    server = make_server(
        *("--index-url", f"http://127.0.0.1:{free_port()}", "--local-mode", "on"),
        prefix=("sh", "-c", 'exec "$@" 2>/dev/full', "sh"),
    )
    held = server.create(ADMIN)["accessToken"]
    answer = server.http.post("/operations?action=getIndexSizes", headers={"Authorization": f"Bearer {held}"})
    assert answer.status_code == 503
    assert answer.json()["error"]["type"] == "UNAVAILABLE"
