"""Limits of one request: at the limit it is accepted, over it the error states the limit."""

import time
from collections.abc import Iterator
from typing import Any

import pytest

from bench.fill import fill
from tests.support.server import ADMIN, LIST, GraphQLRefused, Server

ON = "on AccessTokenMetadata"
END = "mutation ($input: RevokeAccessTokensInput!) { revokeAccessTokens(input: $input) { count } }"


def repeat(count: int, text: str) -> str:
    """Repeat the text, with its number in place of #."""
    return " ".join(text.replace("#", str(number)) for number in range(count))


def tokens(selections: str) -> str:
    return "{ listAccessTokens { tokens { " + selections + " } } } "


def values(count: int) -> str:
    # The argument, its three fields and two filter fields are literals too.
    return (
        '{ listAccessTokens(input: {count: 1, filters: [{field: "name", values: ['
        + '"a" ' * count
        + "]}]}) { total } }"
    )


def variables(count: int) -> str:
    used = '{ listAccessTokens(input: {filters: [{field: "name", values: [' + repeat(count, "$v#") + "]}]}) { total } }"
    return "query (" + repeat(count, '$v#: String = "a"') + ")" + used


DOCUMENTS: dict[str, tuple[str, str, str]] = {
    "fragments": (
        tokens(repeat(50, "...f#")) + repeat(50, f"fragment f# {ON} {{ id }}"),
        tokens("...f0") + repeat(51, f"fragment f# {ON} {{ id }}"),
        "more than 50 fragments",
    ),
    "operations": (
        repeat(50, "query q# { me { corpUser { urn } } }"),
        repeat(51, "query q# { me { corpUser { urn } } }"),
        "more than 50 operations",
    ),
    "definitions of types": ("{ me { corpUser { urn } } }", repeat(51, "type T# { a: Int }"), "more than 50 fragments"),
    "lines": (
        "\n" * 4_999 + "{ me { corpUser { urn } } }",
        "\n" * 5_000 + "{ me { corpUser { urn } } }",
        "and 5,000 lines",
    ),
    "variables": (variables(100), variables(101), "declare more than 100 variables"),
    "directives": (
        "{ me { corpUser { " + repeat(98, "a#: urn @include(if: true)") + " } } }",
        "{ me { corpUser { " + repeat(101, "a#: urn @include(if: true)") + " } } }",
        "more than 100 directives",
    ),
    "directives of fragments": (
        "{ me { ... @skip(if: false) { corpUser { urn } } } }",
        "{ me { " + "... @skip(if: false) { corpUser { urn } } " * 101 + "} }",
        "more than 100 directives",
    ),
    "values written into it": (values(300), values(1_195), "more than 1,200 literal arguments and values"),
    "the schema": (
        "{" + repeat(2, "a#: __schema { types { name } }") + "}",
        "{" + repeat(3, "a#: __schema { types { name } }") + "}",
        "__schema and __type more than 2 times",
    ),
    "the schema's types": (
        "{ __schema { " + repeat(2, "a#: types { name }") + " } }",
        "{ __schema { " + repeat(3, "a#: types { name }") + " } }",
        "__schema and __type more than 2 times",
    ),
}


@pytest.mark.parametrize("what", DOCUMENTS)
def test_document_at_a_limit_is_accepted(server: Server, what: str) -> None:
    asked = {"query": DOCUMENTS[what][0], "operationName": "q1" if what == "operations" else None}
    answer = server.http.post("/api/graphql", json=asked, headers={"X-Service-Actor": ADMIN}).json()
    assert answer["data"]
    assert "errors" not in answer


@pytest.mark.parametrize("what", DOCUMENTS)
def test_error_of_a_document_over_a_limit_states_the_limit(server: Server, what: str) -> None:
    _, beyond, limit = DOCUMENTS[what]
    with pytest.raises(GraphQLRefused) as refused:
        server.ask(beyond, actor=ADMIN)
    assert refused.value.reason == "document_too_complex"
    assert limit in refused.value.errors[0]["message"]


def contain(count: int, length: int) -> dict[str, Any]:
    return {"field": "name", "condition": "CONTAIN", "values": [f"{n}".rjust(length, "x") for n in range(count)]}


def test_eight_partial_values_are_accepted(server: Server) -> None:
    assert server.tokens(filters=[contain(4, 500), contain(4, 500)])["total"] == 0


def test_300_whole_values_are_accepted(server: Server) -> None:
    whole = {**contain(300, 166), "condition": "IN"}
    assert server.tokens(filters=[whole])["total"] == 0


@pytest.mark.parametrize(
    ("filters", "limit"),
    [
        ([contain(4, 5), contain(5, 5)], "EQUAL and IN may have at most 8 values together"),
        ([{**contain(300, 167), "condition": "IN"}], "filters may have at most 50,000 characters of values together"),
        ([contain(5, 1_000), contain(1, 1)], "EQUAL and IN may have at most 5,000 characters of values together"),
    ],
    ids=["values", "characters of whole ones", "characters"],
)
@pytest.mark.parametrize("query", [LIST, END], ids=["list", "end"])
def test_error_of_too_many_partial_values_states_the_limit(
    server: Server, query: str, filters: list[Any], limit: str
) -> None:
    with pytest.raises(GraphQLRefused) as refused:
        server.ask(query, {"input": {"filters": filters}}, actor=ADMIN)
    assert refused.value.reason == "invalid_field"
    assert limit in refused.value.errors[0]["message"]


def lists(count: int, given: str) -> str:
    return "{" + repeat(count, f"l#: listAccessTokens(input: {{{given}}}) {{ total }} ") + "}"


@pytest.mark.parametrize(
    "given",
    [
        'filters: [{field: "name", value: "x"}]',
        'sort: {field: "name"}',
        "start: 1001",
        'filters: [{field: "actorUrn", values: ["urn:li:corpuser:a", "urn:li:corpuser:b"]}]',
    ],
)
def test_request_may_scan_all_tokens_eight_times(server: Server, given: str) -> None:
    assert len(server.ask(lists(8, given), actor=ADMIN)) == 8
    answer = server.post(lists(9, given), actor=ADMIN).json()
    (refused,) = answer["errors"]
    assert "at most 8 times together" in refused["message"]
    assert list(answer["data"].values()).count(None) == 1


@pytest.mark.parametrize(
    "given",
    [
        "start: 0",
        "start: 1000",
        'filters: [{field: "ownerUrn", value: "urn:li:corpuser:a"}, {field: "name", value: "x"}]',
    ],
    ids=["in their order", "from the thousandth", "of one owner"],
)
def test_indexed_lists_are_limited_only_by_root_fields(server: Server, given: str) -> None:
    assert len(server.ask(lists(20, given), actor=ADMIN)) == 20


@pytest.mark.parametrize("call", ["listAccessTokens", "revokeAccessTokens"])
def test_request_may_scan_the_tokens_of_one_actor_forty_times(server: Server, call: str) -> None:
    one = '{field: "actorUrn", value: "urn:li:corpuser:a"}, {field: "name", condition: CONTAIN, values: ["x", "y"]}'
    shown, kind = ("total", "query") if call == "listAccessTokens" else ("count", "mutation")
    parts = [f"l{number}: {call}(input: {{filters: [{one}]}}) {{ {shown} }}" for number in range(20)]
    assert len(server.ask(f"{kind} {{ {' '.join(parts)} }}", actor=ADMIN)) == 20
    parts[7] = parts[7].replace('"y"', '"y", "z"')
    (refused,) = server.post(f"{kind} {{ {' '.join(parts)} }}", actor=ADMIN).json()["errors"]
    assert "at most 40 times together" in refused["message"]


def test_dry_runs_count_as_scans(server: Server) -> None:
    dry = repeat(9, 'r#: revokeAccessTokens(input: {filters: [{field: "name", value: "x"}]}) { count } ')
    errors = server.post("mutation {" + dry + "}", actor=ADMIN).json()["errors"]
    assert ["at most 8 times together" in error["message"] for error in errors] == [True]


@pytest.mark.parametrize(
    "given",
    [
        {"input": {"filters": [1] * 12_000}},
        {"input": {"filters": [[]] * 4_000}, "other": {str(number): {} for number in range(4_000)}},
    ],
    ids=["a list", "lists and objects"],
)
def test_body_with_too_many_members_is_rejected_before_parsing(server: Server, given: Any) -> None:
    with pytest.raises(GraphQLRefused) as refused:
        server.ask(LIST, given, actor=ADMIN)
    assert refused.value.reason == "invalid_json"
    assert refused.value.errors[0]["message"] == "The body may have at most 12,000 commas and opening brackets."


@pytest.mark.parametrize(("count", "reason"), [(60_000, None), (60_001, "invalid_json")])
def test_body_with_too_many_backslashes_is_rejected_before_parsing(
    server: Server, count: int, reason: str | None
) -> None:
    body = b'{"query": "{ me { corpUser { urn } } }", "other": "%s"}' % (b"\\n" * count)
    headers = {"Content-Type": "application/json", "X-Service-Actor": ADMIN}
    answer = server.http.post("/api/graphql", content=body, headers=headers).json()
    refused = [error["extensions"]["reason"] for error in answer.get("errors", ())]
    assert refused == ([] if reason is None else [reason])


def test_operation_body_with_too_many_members_is_rejected(server: Server) -> None:
    token = server.create(ADMIN)["accessToken"]
    answer = server.operate("getEsTaskStatus", {"task": "n:1", "more": [[]] * 12_000}, token=token)
    assert answer.status_code == 400
    assert answer.json()["error"]["message"] == "The body may have at most 12,000 commas and opening brackets."


def test_ids_of_the_largest_revocation_fit_the_body_limit(server: Server) -> None:
    meant = {"ids": [f"{number:043}=" for number in range(2_000)]}
    assert server.ask(END, {"input": meant}, actor=ADMIN)["revokeAccessTokens"]["count"] == 0


def test_requirements_of_a_gateway_are_limited(server: Server) -> None:
    token = {"Authorization": f"Bearer {server.create(ADMIN)['accessToken']}"}
    others = "&x=watchword.scope" * 500
    asked = "/auth?" + "&".join(["watchword.status=200"] * 200) + others
    assert server.http.get(asked, headers=token).status_code == 200
    refused = server.http.get(asked + "&watchword.status=200", headers=token)
    assert refused.status_code == 403
    assert "more than 200" in refused.json()["error"]["message"]


@pytest.mark.parametrize("path", ["/oauth2/introspect", "/oauth2/revoke"])
def test_form_has_at_most_1500_escapes(server: Server, path: str) -> None:
    headers = {
        "Authorization": f"Bearer {server.create(ADMIN)['accessToken']}",
        "Content-Type": "application/x-www-form-urlencoded",
    }
    assert server.http.post(path, content="token=" + "%41" * 1_500, headers=headers).status_code == 200
    refused = server.http.post(path, content="token=" + "%41" * 1_501, headers=headers)
    assert refused.status_code == 400
    assert refused.json()["error_description"] == "The body may have at most 1,500 escapes."


@pytest.fixture(scope="module")
def filled_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    folder = tmp_path_factory.mktemp("filled")
    (folder / "data").mkdir(mode=0o700)
    fill(folder / "data" / "watchword.db", 1_200, now=time.time_ns() // 1_000_000)
    trusting = {"WATCHWORD_TRUSTED_PROXIES": "127.0.0.0/8", "WATCHWORD_LOCAL_MODE": "on"}
    with Server(folder, env=trusting) as server:
        yield server


def test_client_behind_more_than_nineteen_proxies_is_unknown(filled_server: Server) -> None:
    token = filled_server.create(ADMIN, allowedNetworks=["10.0.0.0/8"])["accessToken"]

    def status(proxies: int) -> int:
        chain = ",".join(["10.1.2.3", *["127.0.0.1"] * proxies])
        headers = {"Authorization": f"Bearer {token}", "X-Forwarded-For": chain}
        return filled_server.http.get("/auth", headers=headers).status_code

    assert [status(proxies) for proxies in (0, 1, 19, 20, 3_000)] == [204, 204, 204, 401, 401]


def test_many_rejected_peers_do_not_hide_the_first_use_of_another_revoked_token(filled_server: Server) -> None:
    noise, stolen = filled_server.create(ADMIN), filled_server.create(ADMIN)
    for made in (noise, stolen):
        filled_server.revoke(made["metadata"]["id"], actor=ADMIN)

    def refused(made: Any, client: str) -> None:
        headers = {"Authorization": f"Bearer {made['accessToken']}", "X-Forwarded-For": client}
        assert filled_server.http.get("/auth", headers=headers).status_code == 401

    for number in range(520):
        refused(noise, f"10.9.{number >> 8}.{number & 255}")
    refused(stolen, "192.0.2.66")
    query = "query ($input: ListEventsInput) { listEvents(input: $input) { events { tokenId peer detail } } }"
    wanted = {"input": {"actions": ["authentication.failed"], "count": 1000}}
    found = filled_server.ask(query, wanted, actor=ADMIN)["listEvents"]["events"]
    of_it = [(event["peer"], event["detail"]) for event in found if event["tokenId"] == stolen["metadata"]["id"]]
    assert of_it == [("192.0.2.66", {"reason": "token_revoked"})]


def test_lists_of_one_request_are_limited_to_fifty_thousand_values(filled_server: Server) -> None:
    selected = (
        "{ tokens { id " + repeat(17, "b#: id") + " } }"
    )  # with these, twenty fields: a thousand rows have twenty thousand
    query = (
        "query ($input: ListAccessTokensInput) {" + repeat(3, f"a#: listAccessTokens(input: $input) {selected}") + "}"
    )
    answer = filled_server.post(query, {"input": {"count": 1_000}}, actor=ADMIN).json()
    given = [answer["data"][name] and len(answer["data"][name]["tokens"]) for name in ("a0", "a1", "a2")]
    assert given == [1_000, 1_000, None]
    (error,) = answer["errors"]
    assert error["path"] == ["a2"]
    assert error["extensions"]["reason"] == "invalid_field"
    assert "at most 50,000 values" in error["message"]


def test_page_of_a_thousand_tokens_with_every_field_is_allowed(filled_server: Server) -> None:
    every = filled_server.ask('{ __type(name: "AccessTokenMetadata") { fields { name } } }', actor=ADMIN)
    # The last two are lists of their own, whose values count.
    parts = {"owner": "owner { urn username }", "usesByDay": "", "networks": ""}
    fields = " ".join(parts.get(field["name"], field["name"]) for field in every["__type"]["fields"])
    query = f"{{ listAccessTokens(input: {{count: 1000}}) {{ total tokens {{ {fields} }} }} }}"
    assert len(filled_server.ask(query, actor=ADMIN)["listAccessTokens"]["tokens"]) == 1_000
