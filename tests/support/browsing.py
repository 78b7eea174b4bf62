"""A browser as the server sees it: our own page's requests, with the cookie that it was given."""

from collections.abc import Mapping
from typing import Any

import httpx

from tests.support.server import Server, plain_client

ME = "{ me { corpUser { urn } } }"


class Browser:
    """Sends what the console's pages send. `headers` given to a call replace its own; None leaves one out."""

    def __init__(self, server: Server, url: str = "") -> None:
        self.url = url or server.url
        self.http = plain_client(self.url)
        self.headers = {"X-Watchword-Console": "1", "Origin": self.url}

    def send(
        self, method: str, path: str, content: Any = None, headers: Mapping[str, str | None] | None = None
    ) -> httpx.Response:
        sent = {name: value for name, value in {**self.headers, **(headers or {})}.items() if value is not None}
        return self.http.request(method, path, headers=sent, **({} if content is None else {"json": content}))

    def sign_in(self, headers: Mapping[str, str | None] | None = None, **how: str) -> httpx.Response:
        """With `token=` or `actor=`."""
        return self.send("POST", "/session", how, headers)

    def signed_in(self, **how: str) -> "Browser":
        answer = self.sign_in(None, **how)
        assert answer.status_code == 200, answer.text
        return self

    def session(self, headers: Mapping[str, str | None] | None = None) -> Any:
        answer = self.send("GET", "/session", headers=headers)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def sign_out(self) -> httpx.Response:
        return self.send("DELETE", "/session")

    def post(
        self,
        query: str = ME,
        variables: Mapping[str, Any] | None = None,
        headers: Mapping[str, str | None] | None = None,
        path: str = "/api/graphql",
    ) -> httpx.Response:
        return self.send("POST", path, {"query": query, "variables": variables or {}}, headers)

    def ask(self, query: str = ME, variables: Mapping[str, Any] | None = None) -> Any:
        answer = self.post(query, variables).json()
        assert "errors" not in answer, answer
        return answer["data"]

    @property
    def cookie(self) -> str:
        """The value that it holds; empty for none."""
        held = [cookie.value for cookie in self.http.cookies.jar]
        assert len(held) <= 1
        return (held[0] or "") if held else ""

    def close(self) -> None:
        self.http.close()


def reason_of(answer: httpx.Response) -> tuple[int, str]:
    content = answer.json()
    if "error" in content:
        return answer.status_code, content["error"]["reason"]
    return answer.status_code, content["errors"][0]["extensions"]["reason"]
