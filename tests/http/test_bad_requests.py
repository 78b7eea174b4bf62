"""Bad requests: bodies, headers and documents over the limits are rejected with a well-formed error, and nothing is
stored.
"""

import socket
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import orjson
import pytest

from tests.support.console import first_token
from tests.support.server import ADMIN, CREATE, GENERATE, LIST, Server
from tests.support.store_file import stored
from tests.support.wire import AS_ADMIN, JSON_TYPE, Answer, connect, head, receive, send, send_chunked

ME = "{ me { corpUser { urn } } }"
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def bearer(server: Server) -> str:
    """For a client that half-closes the connection and so may not name an actor."""
    return f"Authorization: Bearer {server.create(ADMIN)['accessToken']}"


@pytest.fixture(autouse=True)
def store_unchanged(server: Server) -> Iterator[None]:
    before = stored(server)
    yield
    assert stored(server) == before


def error_of(answer: Answer, status: int, reason: str) -> dict[str, Any]:
    """Return the single error of a GraphQL response with this status."""
    assert answer.status == status, answer
    (error,) = answer.json()["errors"]
    assert error["extensions"]["code"] == status
    assert error["extensions"]["reason"] == reason
    assert answer.header("X-Request-Id")
    assert "data" not in answer.json()
    result: dict[str, Any] = error
    return result


def body(query: object = ME, **more: object) -> bytes:
    return orjson.dumps({"query": query, **more})


class TestBody:
    @pytest.mark.parametrize(
        "sent",
        [
            b"", b" ", b"{", b"}", b"nonsense", b"{'query': 'x'}", b'{"query": "x",}', b'{"query": NaN}', b"\xff\xfe",
            b'{"query": "\\ud800"}', b'{"query": "\\udfff\\ud800"}', b'{"query": "\xed\xa0\x80"}', b'{"query": "\xff"}',
            b'{"query": "\x00"}', b'\xef\xbb\xbf{"query": "x"}', b'{"query": "x"} {}', b"\x00",
            b'{"query": "x", "variables": {"a": "\\udc00"}}', b"[" * 100_000, b'{"a":' * 100_000,
        ],
        ids=lambda sent: repr(sent[:40]),
    )  # fmt: skip
    def test_body_that_is_not_json_is_rejected_with_400(self, server: Server, sent: bytes) -> None:
        error = error_of(send(server, body=sent), 400, "invalid_json")
        assert error["message"] == "The body must be JSON: an object with query and variables."

    @pytest.mark.parametrize("sent", [b"null", b"1", b'"x"', b"[]", b'[{"query": "{ me { corpUser { urn } } }"}]'])
    def test_body_that_is_no_object_is_rejected_with_400(self, server: Server, sent: bytes) -> None:
        assert "object" in error_of(send(server, body=sent), 400, "invalid_json")["message"]

    @pytest.mark.parametrize(
        ("sent", "field"),
        [
            (b"{}", "query"),
            (body(query=None), "query"),
            (body(query=5), "query"),
            (body(query=["{ me }"]), "query"),
            (body(variables=[]), "variables"),
            (body(variables="{}"), "variables"),
            (body(variables=1), "variables"),
            (body(operationName=1), "operationName"),
            (body(operationName={}), "operationName"),
            (body(extensions="{}"), "extensions"),
            (body(extensions=[]), "extensions"),
        ],
    )
    def test_body_field_of_the_wrong_type_is_named(self, server: Server, sent: bytes, field: str) -> None:
        error = error_of(send(server, body=sent), 400, "invalid_json")
        assert error["extensions"]["field"] == field
        assert error["message"].startswith(field)

    @pytest.mark.parametrize(
        "headers",
        [
            [],
            ["Content-Type: text/plain"],
            ["Content-Type: application/graphql"],
            ["Content-Type: application/x-www-form-urlencoded"],
            ["Content-Type: multipart/form-data; boundary=x"],
            ["Content-Type: application/json; charset=latin-1"],
            ["Content-Type: application/jsonx"],
            ["Content-Type: "],
            [b"Content-Type: \xff"],
            [JSON_TYPE, "Content-Encoding: gzip"],
        ],
        ids=str,
    )
    def test_body_without_json_content_type_is_rejected_with_415(
        self, server: Server, headers: list[str | bytes]
    ) -> None:
        error = error_of(send(server, headers=[AS_ADMIN, *headers]), 415, "not_json")
        assert "application/json" in error["message"]

    @pytest.mark.parametrize("kind", ["application/json;charset=utf-8", 'Application/JSON; charset="UTF-8"'])
    def test_json_content_type_is_accepted_in_any_spelling(self, server: Server, kind: str) -> None:
        assert send(server, headers=[AS_ADMIN, f"Content-Type: {kind}"]).status == 200

    def test_body_of_two_mebibytes_is_rejected_with_413(self, server: Server) -> None:
        error = error_of(send(server, body=body() + b" " * 2 * MIB), 413, "body_too_large")
        assert "1,048,576 bytes" in error["message"]

    def test_chunked_body_of_two_mebibytes_is_rejected_with_413(self, server: Server) -> None:
        chunks = [body(), *[b" " * 65_536] * 32]
        error_of(send_chunked(server, chunks), 413, "body_too_large")

    @pytest.mark.parametrize("options", [(), ("--trusted-proxies", "10.0.0.0/8")], ids=["rsgi", "asgi"])
    def test_body_of_many_tiny_chunks_is_rejected(
        self, make_server: Callable[..., Server], options: tuple[str, ...]
    ) -> None:
        server = make_server(*options)
        bearer = f"Authorization: Bearer {first_token(server)[0]}"
        with closing(connect(server)) as connection:
            headers = [bearer, JSON_TYPE, "Transfer-Encoding: chunked"]
            connection.sendall(head(server, "POST", "/api/graphql", headers, None) + b"2\r\n  \r\n" * 2_000)
            answer = receive(connection)  # without the end of the body
        error = error_of(answer, 400, "too_many_chunks")
        assert "at most 1,000 chunks" in error["message"]
        assert answer.header("Connection") == "close"
        asked = body()
        letters = [asked[n : n + 1] for n in range(len(asked))]
        on_slow_network = [b" " * 1_400] * ((MIB - len(asked)) // 1_400)
        assert send_chunked(server, letters + on_slow_network, [bearer, JSON_TYPE]).status == 200

    @pytest.mark.parametrize("ending", [b"", b"ZZ\r\n", b"5\r\nab"])
    def test_truncated_chunked_body_is_rejected(self, server: Server, bearer: str, ending: bytes) -> None:
        wanted = {"type": "PERSONAL", "actorUrn": ADMIN, "duration": "ONE_HOUR", "name": "cut off"}
        asked = body(CREATE, variables={"input": wanted})
        headers = [bearer, JSON_TYPE, "Transfer-Encoding: chunked"]
        with closing(connect(server)) as connection:
            connection.sendall(head(server, "POST", "/api/graphql", headers, None))
            connection.sendall(f"{len(asked):x}\r\n".encode() + asked + b"\r\n" + ending)
            connection.shutdown(socket.SHUT_WR)
            error_of(receive(connection), 408, "body_timeout")

    def test_body_limit_is_one_mebibyte(self, server: Server) -> None:
        assert send(server, body=body().ljust(MIB)).status == 200
        assert send_chunked(server, [body(), b" " * (MIB - len(body()))]).status == 200
        assert send(server, body=body().ljust(MIB + 1)).status == 413

    def test_large_content_length_is_rejected_before_the_body_arrives(self, server: Server) -> None:
        with closing(connect(server)) as connection:
            connection.sendall(head(server, "POST", "/api/graphql", [AS_ADMIN, JSON_TYPE], 10**18))
            error_of(receive(connection), 413, "body_too_large")

    @pytest.mark.parametrize("length", ["-1", "abc", "1e3", "0x10", "9" * 400])
    def test_invalid_content_length_is_rejected(self, server: Server, length: str) -> None:
        answer = send(server, headers=[AS_ADMIN, JSON_TYPE, f"Content-Length: {length}"], body=None)
        assert 400 <= answer.status < 500

    def test_deeply_nested_variables_cause_no_server_error(self, server: Server) -> None:
        for depth in (100, 500, 1_000, 1_100, 10_000):
            nested = b"[" * depth + b"]" * depth
            for query in (ME, LIST):
                sent = b'{"query": %s, "variables": {"input": %s}}' % (orjson.dumps(query), nested)
                answer = send(server, body=sent)
                assert answer.status in (200, 400)
                assert query is ME or answer.json()["errors"][0]["extensions"]["code"] == 400


class TestHeaders:
    def test_authorization_of_30_kb_is_rejected_with_400(self, server: Server) -> None:
        answer = send(server, headers=[AS_ADMIN, JSON_TYPE, "Authorization: Bearer " + "a" * 30_000])
        error = error_of(answer, 400, "invalid_header")
        assert error["extensions"]["field"] == "Authorization"
        assert "at most 8,192 characters" in error["message"]

    def test_headers_of_1_mb_are_rejected_with_431(self, server: Server) -> None:
        assert send(server, headers=[AS_ADMIN, JSON_TYPE, "Authorization: Bearer " + "a" * 1_000_000]).status == 431

    @pytest.mark.parametrize("target", ["/api/graphql", "/auth", "/api/nothing"])
    @pytest.mark.parametrize("second", ["Bearer b", "Bearer a", "Basic b", ""])
    def test_repeated_authorization_header_is_rejected_with_400(self, server: Server, target: str, second: str) -> None:
        headers = [AS_ADMIN, JSON_TYPE, "Authorization: Bearer a", f"authorization: {second}"]
        answer = send(server, target=target, headers=headers)
        assert answer.status == 400
        shown = answer.json()["errors"][0] if target == "/api/graphql" else answer.json()["error"]
        assert shown["message"] == "The Authorization header must be given once."

    @pytest.mark.parametrize("value", [b"\xff\xfe", b"\xed\xa0\x80", "\u00e9".encode(), b"a b c", b"\x80" * 200])
    def test_authorization_with_non_ascii_bytes_is_an_invalid_token(self, server: Server, value: bytes) -> None:
        answer = send(server, headers=[AS_ADMIN, JSON_TYPE, b"Authorization: Bearer " + value])
        error_of(answer, 401, "invalid_token")

    @pytest.mark.parametrize("name", ["X-Service-Actor", "Authorization", "X-Request-Id", "Accept", "Host"])
    def test_header_with_nul_bytes_is_rejected(self, server: Server, name: str) -> None:
        answer = send(server, headers=[JSON_TYPE, f"{name}: a\x00b"])
        assert answer.status == 400

    @pytest.mark.parametrize("path", ["/%00", "/%ff", "/%ed%a0%80", "/api/%00", "/auth/%ff", "/gms/%ed%a0%80", "/%zz"])
    def test_path_with_invalid_bytes_gets_a_well_formed_error(self, server: Server, path: str) -> None:
        answer = send(server, "GET", path, [], None)
        assert answer.status in (400, 401, 404)
        assert answer.json()["error"]["code"] == answer.status

    @pytest.mark.parametrize("method", ["GET", "HEAD", "PUT", "PATCH", "DELETE", "OPTIONS", "BREW"])
    def test_graphql_rejects_other_methods_with_405(self, server: Server, method: str) -> None:
        answer = send(server, method, "/api/graphql?query={me{corpUser{urn}}}", [AS_ADMIN], None)
        assert answer.status == 405
        assert answer.header("Allow") == "POST"
        assert method == "HEAD" or answer.json()["errors"][0]["extensions"]["reason"] == "method_not_allowed"


def fragment_chain(count: int) -> str:
    """Return a chain of fragments, each spread in the one before."""
    links = " ".join(f"fragment f{n} on CorpUser {{ ...f{n + 1} }}" for n in range(count))
    return f"{{ me {{ corpUser {{ ...f0 }} }} }} {links} fragment f{count} on CorpUser {{ urn }}"


def fragment_bomb(levels: int) -> str:
    """Return fragments that each spread the next one twice: 2 ** levels fields."""
    links = " ".join(
        f"fragment f{n} on Query {{ a{n}: me {{ corpUser {{ urn }} }} ...f{n + 1} ... {{ ...f{n + 1} }} }}"
        for n in range(levels)
    )
    return f"{{ ...f0 }} {links} fragment f{levels} on Query {{ me {{ corpUser {{ urn }} }} }}"


def introspection(depth: int) -> str:
    return '{ __type(name: "Query") { ' + "fields { type { " * depth + "name" + " } }" * depth + " } }"


class TestDocument:
    @pytest.mark.parametrize(
        ("query", "limit"),
        [
            ("{a" * 10_000 + "}" * 10_000, "5,000 lexical tokens"),
            ("{a" * 1_000 + "}" * 1_000, "deep"),
            ("{ me { " + "... { " * 1_000 + "corpUser { urn } " + "} " * 1_000 + "} }", "deep"),
            (f"{{ listAccessTokens(input: {{filters: {'[' * 2_000}{']' * 2_000}}}) {{ total }} }}", "deep"),
            ("query ($a: " + "[" * 2_000 + "Int" + "]" * 2_000 + ") " + ME, "deep"),
            ("{ " + " ".join(f"a{n}: me {{ corpUser {{ urn }} }}" for n in range(21)) + " }", "20 root fields"),
            ("{ ... { " + " ".join(f"a{n}: __typename" for n in range(21)) + " } }", "20 root fields"),
            ("{ me { corpUser { " + " ".join(f"a{n}: urn" for n in range(1_000)) + " } } }", "1,000 fields"),
            ("{ me { corpUser { " + "urn " * 990 + "} } }", "repeat"),
            ("{ " + "me { corpUser { urn } } " * 1_000 + "}", "5,000 lexical tokens"),
            ("{ me # " + "x" * 100_000 + "\n{ corpUser { urn } } }", "100,000 bytes"),
            ("{ me # " + "é" * 50_000 + "\n{ corpUser { urn } } }", "100,000 bytes"),
            ("#\n" * 6_000 + ME, "5,000 lexical tokens"),
            (fragment_bomb(10), "1,000 fields"),
            (fragment_bomb(200), "1,000 fields"),
            (fragment_chain(250), "nest"),
            (fragment_chain(600), "nest"),
            (introspection(12), "deeper than 20"),
        ],
        ids=range(18),
    )  # fmt: skip
    def test_document_over_a_limit_error_states_the_limit(self, server: Server, query: str, limit: str) -> None:
        answer = send(server, body=body(query))
        assert answer.status == 200
        (error,) = answer.json()["errors"]
        assert error["extensions"]["reason"] == "document_too_complex"
        assert limit in error["message"]

    @pytest.mark.parametrize(
        "query",
        [
            "{ ...a } fragment a on Query { ...a }",
            "{ ...a } fragment a on Query { ...b } fragment b on Query { ...a }",
            "{ ...a } fragment a on Query { ...b } fragment b on Query { ...c } fragment c on Query { ...b ...a }",
            " ".join(f"fragment f{n} on Query {{ ...f{(n + 1) % 50} }}" for n in range(50)) + " { ...f0 }",
        ],
        ids=range(4),
    )
    def test_document_with_cyclic_fragments_is_rejected(self, server: Server, query: str) -> None:
        errors = send(server, body=body(query)).json()["errors"]
        assert any("Cannot spread fragment" in error["message"] for error in errors)

    def test_fragment_chains_cause_no_server_error(self, server: Server) -> None:
        for count in range(10, 620, 30):
            answer = send(server, body=body(fragment_chain(count)))
            assert answer.status == 200
            errors = answer.json().get("errors", [])
            assert all(error["extensions"]["code"] == 400 for error in errors)

    @pytest.mark.parametrize(
        "query",
        [
            "", " ", "{", "}", "{}", "{ me", "\x00", "\ufeff", "query", "fragment a on CorpUser { urn }", "# nothing",
            "type A { b: Int }", "extend type Query { a: Int }", "subscription { me { corpUser { urn } } }",
            "{ me { corpUser { urn } } } { me { corpUser { urn } } }", "query a { me } query a { me }",
            "{ me { corpUser { urn @unknown } } }", "{ me { corpUser { urn @include } } }",
            "{ a: me { corpUser { urn } } a: listPolicies(input: {}) { total } }",
            "{ me { corpUser { ... on Policy { urn } } } }", "{ me { corpUser { ...nothing } } }", "{ __schema }",
            "{ __type(name: 5) { name } }",
        ],
    )  # fmt: skip
    def test_invalid_document_error_has_its_location(self, server: Server, query: str) -> None:
        answer = send(server, body=body(query))
        assert answer.status == 200
        for error in answer.json()["errors"]:
            assert error["extensions"].pop("classification") in {"InvalidSyntax", "ValidationError"}
            assert error["extensions"] == {"code": 400, "type": "BAD_REQUEST", "reason": "invalid_document"}

    def test_document_with_two_operations_needs_an_operation_name(self, server: Server) -> None:
        query = f"query a {ME} query b {ME}"
        assert "errors" not in send(server, body=body(query, operationName="b")).json()
        for name in (None, "", "c"):
            answer = send(server, body=body(query, operationName=name)).json()
            assert answer["errors"][0]["extensions"]["reason"] == "invalid_document"

    def test_rejected_document_runs_no_mutation(self, server: Server, actor: str) -> None:
        query = CREATE.rstrip("} \n") + "} } nothing }"
        wanted = {"type": "PERSONAL", "actorUrn": actor, "duration": "ONE_HOUR", "name": "x"}
        answer = server.post(query, {"input": wanted}, actor=ADMIN).json()
        assert "nothing" in answer["errors"][0]["message"]
        assert answer["data"] is None

    def test_document_at_its_limits_is_accepted(self, server: Server) -> None:
        roots = "{ " + " ".join(f"a{n}: me {{ corpUser {{ urn }} }}" for n in range(20)) + " }"
        fields = "{ me { corpUser { " + " ".join(f"a{n}: urn" for n in range(998)) + " } } }"
        long = "{ me #" + "x" * 90_000 + "\n{ corpUser { urn } } }"
        for query in (roots, fields, long):
            assert "errors" not in send(server, body=body(query)).json()


def test_missing_privilege_is_reported_before_invalid_input(server: Server, actor: str) -> None:
    for query, variables in (
        (LIST, {"input": {"start": -1, "filters": [{"field": "colour", "value": "x"}]}}),
        (CREATE, {"input": {"type": "PERSONAL", "actorUrn": "nobody", "duration": "NO_EXPIRY", "name": ""}}),
        ('mutation { revokeAccessToken(tokenId: "nothing") }', {}),
        ('{ getAccessTokenMetadata(token: "\u00e9") { id } }', {}),
    ):
        (error,) = server.post(query, variables, actor=actor).json()["errors"]
        assert error["extensions"]["code"] == 403
        assert error["extensions"]["privilege"] == GENERATE
