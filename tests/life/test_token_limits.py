"""Token limits: scopes, audience and networks only restrict."""

import base64
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.life.holding import HeldToken, LifecycleClient, reason_of
from tests.support.server import ADMIN, GENERATE, MANAGE_ALL, GraphQLRefused, Server
from watchword.authority.privileges import Privilege

MALFORMED = ["", "10.0.0.1/8", "10.0.0.0/33", "a.org", "10.0.0", "::1/129", "0x7f.1/8"]
MALFORMED += ["fe80::%eth0/64", "::ffff:10.0.0.0/104"]
ME = "{ me { platformPrivileges { generatePersonalAccessTokens manageTokens managePolicies viewAuditLog } } }"
OWN = 'query ($of: String!) { listAccessTokens(input: {filters: [{field: "actorUrn", value: $of}]}) { total } }'


def may(life: LifecycleClient, held: HeldToken) -> set[str]:
    told = life.ask(ME, token=held.token)["me"]["platformPrivileges"]
    return {name for name, holds in told.items() if holds}


def claims(token: str) -> dict[str, Any]:
    payload = token.split(".")[1]
    said: dict[str, Any] = json.loads(base64.urlsafe_b64decode(payload + "=" * (-len(payload) % 4)))
    return said


class TestScopes:
    def test_scopes_restrict_the_actor_to_named_privileges(self, life: LifecycleClient) -> None:
        held = life.create(ADMIN, scopes=["VIEW_AUDIT_LOG", "deploy"])
        assert may(life, held) == {"viewAuditLog"}
        with pytest.raises(GraphQLRefused) as refusal:
            life.ask(OWN, {"of": ADMIN}, token=held.token)
        assert (refusal.value.code, refusal.value.reason) == (403, "missing_privilege")
        assert "limited to the scopes VIEW_AUDIT_LOG, deploy" in refusal.value.errors[0]["message"]

    def test_scopes_do_not_grant_privileges(self, life: LifecycleClient) -> None:
        ann = life.new_actor(GENERATE)
        policy = life.server.grant(ann, privileges=("MANAGE_POLICIES",))
        held = life.create(ann, scopes=["MANAGE_POLICIES", GENERATE])
        life.server.withdraw(policy)
        assert may(life, held) == {"generatePersonalAccessTokens"}
        assert life.auth(held).headers["x-auth-scopes"] == GENERATE

    def test_scopes_include_implied_privileges(self, life: LifecycleClient) -> None:
        assert may(life, life.create(ADMIN, scopes=[MANAGE_ALL])) == {"generatePersonalAccessTokens", "manageTokens"}

    def test_empty_scopes_allow_nothing(self, life: LifecycleClient) -> None:
        held = life.create(ADMIN, scopes=[])
        assert may(life, held) == set()
        assert life.is_accepted(held)

    def test_scopes_are_in_token_record_and_auth_headers(self, life: LifecycleClient) -> None:
        held = life.create(ADMIN, scopes=["b:write", GENERATE, "b:write"])
        assert held["scopes"] == [GENERATE, "b:write"]
        assert claims(held.token)["scope"] == f"{GENERATE} b:write"
        assert life.auth(held).headers["x-auth-scopes"] == f"{GENERATE} b:write"
        assert life.create(ADMIN)["scopes"] is None

    @pytest.mark.parametrize(
        "word",
        ["MANAGE_POLICYS", "READ", "two words", 'a"b', "a\\b", "é", "", "x" * 101, "Read", "a:", "a::b", "*:a", "a*"],
    )
    def test_unknown_or_malformed_scopes_are_rejected(self, life: LifecycleClient, word: str) -> None:
        with pytest.raises(GraphQLRefused) as refusal:
            life.create(ADMIN, scopes=["fine", word])
        assert reason_of(refusal.value) == (400, "invalid_field", "scopes[1]")


class TestAudience:
    def test_audience_is_in_token_and_record(self, life: LifecycleClient) -> None:
        held = life.create(ADMIN, audience=["https://a.example", "https://b.example"])
        assert claims(held.token)["aud"] == held["audience"] == ["https://a.example", "https://b.example"]
        assert claims(life.create(ADMIN).token)["aud"] == life.server.url

    def test_token_for_another_audience_is_rejected_by_the_api(self, life: LifecycleClient) -> None:
        other = life.create(ADMIN, audience=["https://a.example"])
        answer = life.server.post("{ me { corpUser { urn } } }", token=other.token)
        assert answer.status_code == 403
        assert answer.json()["errors"][0]["extensions"]["reason"] == "wrong_audience"

    def test_token_for_this_audience_is_accepted_by_the_api(self, life: LifecycleClient) -> None:
        both = life.create(ADMIN, audience=["https://a.example", life.server.url])
        assert "manageTokens" in may(life, both)

    @pytest.mark.parametrize("word", ["", "two words", "é", "x" * 256])
    def test_malformed_audience_is_rejected(self, life: LifecycleClient, word: str) -> None:
        with pytest.raises(GraphQLRefused) as refusal:
            life.create(ADMIN, audience=[word])
        assert reason_of(refusal.value) == (400, "invalid_field", "audience[0]")


class TestNetworks:
    def test_other_networks_are_rejected_and_the_audit_log_has_the_reason(
        self, make_server: Callable[..., Server]
    ) -> None:
        life = LifecycleClient(make_server())
        held = life.create(ADMIN, allowedNetworks=["192.0.2.0/24"])
        refused, nonsense = life.auth(held), life.auth("nonsense")
        assert refused.status_code == 401
        assert refused.json()["error"]["message"] == nonsense.json()["error"]["message"]
        told = life.ask('{ listEvents(input: {actions: ["authentication.failed"]}) { events { tokenId detail } } }')[
            "listEvents"
        ]["events"]
        assert {"tokenId": held.id, "detail": {"reason": "invalid_token", "cause": "network"}} in told

    def test_listed_networks_are_accepted_in_both_ip_versions(self, life: LifecycleClient) -> None:
        assert life.is_accepted(life.create(ADMIN, allowedNetworks=["2001:db8::/32", "127.0.0.0/8"]))

    def test_forwarded_addresses_of_untrusted_peers_are_ignored(self, life: LifecycleClient) -> None:
        held = life.create(ADMIN, allowedNetworks=["192.0.2.0/24"])
        assert life.auth(held, **{"X-Forwarded-For": "192.0.2.7"}).status_code == 401

    def test_forwarded_address_of_a_trusted_proxy_is_used(self, make_server: Callable[..., Server]) -> None:
        life = LifecycleClient(make_server("--trusted-proxies", "127.0.0.1/32", "--local-mode", "on"))
        held = life.create(ADMIN, allowedNetworks=["192.0.2.0/24"])
        for own in ("192.0.2.7", "192.0.2.7:4711", "198.51.100.9, 192.0.2.7"):
            assert life.auth(held, **{"X-Forwarded-For": own}).status_code == 204
        assert life.auth(held, **{"X-Forwarded-For": "192.0.2.7, 198.51.100.9"}).status_code == 401
        assert life.auth(held).status_code == 401
        inner = life.create(ADMIN, allowedNetworks=["127.0.0.0/8"])
        assert life.auth(inner).status_code == 204
        for other in ("203.0.113.9", "203.0.113.9:80", "[2001:db8::9]:80", "unknown", "127.0.0.1.", "_hidden"):
            assert life.auth(inner, **{"X-Forwarded-For": other}).status_code == 401

    @pytest.mark.parametrize(
        "text",
        [
            "",
            "10.0.0.1/8",
            "10.0.0.0/33",
            "a.org",
            "10.0.0",
            "::1/129",
            "0x7f.1/8",
            "fe80::%eth0/64",
            "::ffff:10.0.0.0/104",
        ],
    )
    def test_invalid_networks_are_rejected(self, life: LifecycleClient, text: str) -> None:
        with pytest.raises(GraphQLRefused) as refusal:
            life.create(ADMIN, allowedNetworks=[text])
        assert reason_of(refusal.value) == (400, "invalid_field", "allowedNetworks[0]")

    def test_networks_are_stored_normalized(self, life: LifecycleClient) -> None:
        assert life.create(ADMIN, allowedNetworks=["192.0.2.1"])["allowedNetworks"] == ["192.0.2.1/32"]


def _one(field: str, values: list[str]) -> dict[str, Any]:
    return {field: values}


def test_more_than_fifty_limits_of_a_kind_are_rejected(life: LifecycleClient) -> None:
    for field in ("scopes", "audience", "allowedNetworks"):
        with pytest.raises(GraphQLRefused) as refusal:
            life.create(ADMIN, **_one(field, [f"w{n}" for n in range(51)]))
        assert reason_of(refusal.value) == (400, "invalid_field", field)


@pytest.fixture(scope="module")
def limited(life: LifecycleClient) -> HeldToken:
    return life.create(ADMIN, scopes=[GENERATE, "deploy", "read"], audience=["https://a.example", life.server.url])


@pytest.mark.parametrize("field", ["audience", "allowedNetworks"])
def test_empty_audience_or_networks_are_rejected(life: LifecycleClient, field: str) -> None:
    with pytest.raises(GraphQLRefused) as refusal:
        life.create(ADMIN, **_one(field, []))
    assert reason_of(refusal.value) == (400, "invalid_field", field)


def test_limits_larger_than_a_header_are_rejected(life: LifecycleClient) -> None:
    most = [f"https://{n}.example/".ljust(250, "x") for n in range(12)]  # 3,000 characters
    held = life.create(ADMIN, audience=most)
    assert life.record(held)["audience"] == sorted(most)
    with pytest.raises(GraphQLRefused) as refusal:
        life.create(ADMIN, audience=most, scopes=["y"])
    assert reason_of(refusal.value) == (400, "invalid_field", "scopes")


class TestGatewayRequirements:
    """Query parameters of /auth, all of which must hold."""

    @pytest.mark.parametrize(
        ("query", "status"),
        [
            ("?watchword.scope=deploy", 204),
            ("?watchword.scope=deploy&watchword.scope=read", 204),
            ("?watchword.scope=deploy&watchword.scope=write", 403),
            ("?watchword.scope=write&watchword.scope=deploy", 403),
            ("?watchword.scope=deploy%20read", 403),
            ("?watchword%2escope=write", 403),
            ("?watchword.scope=", 403),
            ("?watchword.scope", 403),
            ("?watchword.audience=https%3A%2F%2Fa.example", 204),
            ("?watchword.audience=https://a.example&watchword.audience=https://b.example", 403),
            (f"?watchword.privilege={GENERATE}", 204),
            (f"?watchword.privilege={GENERATE}&watchword.privilege=MANAGE_POLICIES", 403),
            ("?watchword.privilege=VIEW_AUDIT_LOG", 403),
            ("?watchword.privilege=NO_SUCH_THING", 403),
            ("?watchword.nonsense=1", 403),
            ("?WATCHWORD.scope=write", 403),
            ("?scope=write&privilege=MANAGE_POLICIES&audience=x&a=%zz&b", 204),
            ("?xwatchword.scope=write&watchwordscope=write", 204),
            ("/any/path?q=1&watchword.scope=write", 403),
        ],
    )
    def test_requirement_is_met_or_rejected(
        self, limited: HeldToken, life: LifecycleClient, query: str, status: int
    ) -> None:
        answer = life.auth(limited, query)
        assert answer.status_code == status
        assert (answer.headers["x-auth-urn"], answer.headers["x-auth-token-id"]) == (ADMIN, limited.id)
        assert answer.headers["x-auth-scopes"] == f"{GENERATE} deploy read"

    def test_empty_requirement_is_named(self, limited: HeldToken, life: LifecycleClient) -> None:
        for kind in ("audience", "scope"):
            assert f"requires the {kind} (empty), which" in life.auth(limited, f"?watchword.{kind}=").text

    def test_requirement_is_met_by_an_implied_privilege(self, life: LifecycleClient) -> None:
        parent = life.create(ADMIN, scopes=[GENERATE, "MANAGE_SYSTEM_OPERATIONS"])
        child = life.derive(parent.token, scopes=["TRUNCATE_TIMESERIES_INDEX_PRIVILEGE"])
        for held in (parent, child):
            assert life.auth(held, "?watchword.scope=TRUNCATE_TIMESERIES_INDEX_PRIVILEGE").status_code == 204
        assert life.auth(child, "?watchword.scope=MANAGE_SYSTEM_OPERATIONS").status_code == 403

    def test_unlimited_token_has_all_scopes_of_its_actor_and_no_audience(self, life: LifecycleClient) -> None:
        plain = life.create(life.new_actor("MANAGE_POLICIES", "deploy:x"))
        assert life.auth(plain, "?watchword.scope=deploy:x&watchword.scope=MANAGE_POLICIES").status_code == 204
        assert life.auth(plain, "?watchword.scope=deploy").json()["error"]["reason"] == "missing_scope"
        assert life.auth(plain, f"?watchword.audience={life.server.url}").json()["error"]["reason"] == "wrong_audience"
        assert life.auth(plain, "?watchword.privilege=MANAGE_POLICIES").status_code == 204

    def test_token_for_another_audience_is_rejected_whatever_the_query_names(self, life: LifecycleClient) -> None:
        other = life.create(ADMIN, scopes=[GENERATE, "deploy"], audience=["https://a.example"])
        named = "watchword.audience=https://a.example"
        for query in (
            "",
            "?x=1",
            f"?{named}",
            f"?{named}&watchword.scope=deploy",
            "?watchword.scope=deploy",
            f"?watchword.privilege={GENERATE}",
            f"?{named}&watchword.privilege={GENERATE}",
        ):
            answer = life.auth(other, query)
            assert (answer.status_code, answer.json()["error"]["reason"]) == (403, "wrong_audience"), query
            assert answer.headers["x-auth-token-id"] == other.id

    def test_requirements_are_checked_after_authentication(self, life: LifecycleClient) -> None:
        assert life.auth("nonsense", "?watchword.scope=x").status_code == 401


PRIVILEGES = st.sampled_from([p.name for p in Privilege] + ["deploy", "read", "write"])
NETWORKS = st.sampled_from(["127.0.0.0/8", "127.0.0.1/32", "127.0.0.0/30", "10.0.0.0/8", "0.0.0.0/0", "::/0"])
LIMITS = st.fixed_dictionaries(
    {},
    optional={
        "scopes": st.lists(PRIVILEGES, max_size=4).map(lambda words: [*words, GENERATE]),
        "allowedNetworks": st.lists(NETWORKS, max_size=2).map(lambda words: [*words, "127.0.0.1/32"]),
        "durationIso": st.sampled_from(["PT2M", "PT30M", "PT1H", "P1D"]),
    },
)


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(LIMITS, LIMITS, st.sampled_from(["create", "derive"]))
def test_created_token_is_never_wider_than_its_maker(
    life: LifecycleClient, first: dict[str, Any], second: dict[str, Any], way: str
) -> None:
    maker = life.create(ADMIN, **{"scopes": [GENERATE, "deploy"], **first})
    try:
        if way == "create":
            made = life.create(ADMIN, token=maker.token, **second)
        else:
            made = life.derive(maker.token, **second)
    except GraphQLRefused as refusal:
        if refusal.reason != "wider_than_maker":
            raise
        return
    assert may(life, made) <= may(life, maker)
    for word in ("deploy", "read", "write"):
        if life.auth(made, f"?watchword.scope={word}").status_code == 204:
            assert life.auth(maker, f"?watchword.scope={word}").status_code == 204
    assert made["expiresAt"] <= maker["expiresAt"]
    assert made["createdWith"] == maker.id
    if maker["allowedNetworks"] is not None:
        assert made["allowedNetworks"] is not None
