"""People sign in at a real OpenID provider; their sessions and groups follow what happens there."""

import itertools
import json
import sqlite3
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.support.browsing import reason_of
from tests.support.devices import approve, outcome, poll, start
from tests.support.identity_providers import IdentityProvider, ProviderUser, submit_login
from tests.support.server import ADMIN, CREATE, Server, watchword
from tests.support.signing_in import SignInBrowser, signing_in_at, urn
from tests.support.waiting import until

SESSIONS = "query ($input: ListSessionsInput) { listSessions(input: $input) { total sessions { id method current } } }"
END = "mutation ($id: String!) { endSession(id: $id) }"
LINK = "mutation ($input: LinkActorInput!) { linkActor(input: $input) }"
ACTOR = """query ($urn: String!) { getActor(urn: $urn) { groups externalGroups sessionCount
  identity { issuer subject signedInAt } } }"""
EVENTS = "query ($about: [String!]) { listEvents(input: {aboutUrns: $about}) { events { action actorUrn detail } } }"
ANN = "ann@example.com"
OF_ANN = {"WATCHWORD_OIDC_ALLOWED": f"email={ANN}"}
_numbers = itertools.count()
Travel = Callable[[Server], SignInBrowser]


@pytest.fixture(scope="module")
def company(identity_provider: IdentityProvider, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with signing_in_at(identity_provider.register, tmp_path_factory.mktemp("company")) as server:
        yield server


@pytest.fixture
def person(identity_provider: IdentityProvider) -> ProviderUser:
    return identity_provider.add_user(f"person-{next(_numbers)}", "staff")


@pytest.fixture
def travel() -> Iterator[Travel]:
    """Browsers of a test."""
    made: list[SignInBrowser] = []

    def make(server: Server) -> SignInBrowser:
        made.append(SignInBrowser(server))
        return made[-1]

    yield make
    for browser in made:
        browser.close()


@pytest.fixture
def browser(company: Server, travel: Travel) -> SignInBrowser:
    return travel(company)


@pytest.fixture
def another(company: Server, travel: Travel) -> SignInBrowser:
    return travel(company)


def actor_of(server: Server, user: ProviderUser) -> Any:
    return server.ask(ACTOR, {"urn": urn(user)}, actor=ADMIN)["getActor"]


def actions(server: Server, user: ProviderUser) -> list[str]:
    found = server.ask(EVENTS, {"about": [urn(user)]}, actor=ADMIN)["listEvents"]["events"]
    return [event["action"] for event in reversed(found)]


def test_person_signs_in_returns_to_the_page_and_acts_as_the_actor(
    browser: SignInBrowser, company: Server, person: ProviderUser, identity_provider: IdentityProvider
) -> None:
    answer = browser.sign_in_as(person, "/console/tokens?page=2")
    assert (answer.status_code, answer.headers["location"]) == (303, "/console/tokens?page=2")
    session = browser.session()
    assert (session["signedIn"], session["actorUrn"], session["method"]) == (True, urn(person), "oidc")
    assert session["provider"] == "localhost"
    company.grant(urn(person))
    created = browser.ask(
        CREATE, {"input": {"type": "PERSONAL", "actorUrn": urn(person), "name": "mine", "duration": "ONE_HOUR"}}
    )
    assert company.verify(created["createAccessToken"]["accessToken"]).status_code == 204
    found = actor_of(company, person)
    assert found["identity"]["issuer"] == identity_provider.issuer
    assert found["identity"]["subject"] == f"subject-of-{person.name}"
    assert found["identity"]["signedInAt"] is not None
    first = ["actor.linked", "actor.groups_changed", "actor.updated", "session.started"]
    assert actions(company, person)[: len(first)] == first


def test_no_secret_of_the_sign_in_reaches_log_or_events(
    browser: SignInBrowser, company: Server, person: ProviderUser
) -> None:
    answer = browser.sign_in_as(person)
    query = httpx.URL(str(answer.url)).params
    assert answer.status_code == 303
    told = company.err.read_text() + company.out.read_text()
    events = company.ask("{ listEvents { events { action detail target } } }", actor=ADMIN)
    for secret in (query["code"], query["state"], f"{person.name}@example.com", f"subject-of-{person.name}"):
        assert secret not in told
        assert secret not in str(events)


def test_groups_of_the_last_sign_in_grant_and_stop_granting(
    browser: SignInBrowser, company: Server, person: ProviderUser, identity_provider: IdentityProvider
) -> None:
    group = f"group of {person.name}"
    company.grant(groups=[f"urn:li:corpGroup:group%20of%20{person.name}"])
    identity_provider.change_user(person.name, groups=[group, "staff"])
    browser.signed_in_as(person)
    made = browser.ask(
        CREATE, {"input": {"type": "PERSONAL", "actorUrn": urn(person), "name": "mine", "duration": "ONE_HOUR"}}
    )
    token = made["createAccessToken"]["accessToken"]
    assert actor_of(company, person)["groups"] == []
    assert f"urn:li:corpGroup:group%20of%20{person.name}" in actor_of(company, person)["externalGroups"]
    may = "{ me { platformPrivileges { generatePersonalAccessTokens } } }"
    assert company.ask(may, token=token)["me"]["platformPrivileges"]["generatePersonalAccessTokens"]
    identity_provider.change_user(person.name, groups=["staff"])
    assert company.ask(may, token=token)["me"]["platformPrivileges"]["generatePersonalAccessTokens"]
    browser.signed_in_as(person)
    assert not company.ask(may, token=token)["me"]["platformPrivileges"]["generatePersonalAccessTokens"]
    assert actor_of(company, person)["externalGroups"] == ["urn:li:corpGroup:staff"]


def test_group_of_the_provider_never_becomes_a_group_made_here(
    browser: SignInBrowser, company: Server, person: ProviderUser, identity_provider: IdentityProvider
) -> None:
    name = f"ops-{person.name}"
    create = "mutation ($input: CreateGroupInput!) { createGroup(input: $input) }"
    made = company.ask(create, {"input": {"id": name, "name": name}}, actor=ADMIN)["createGroup"]
    identity_provider.change_user(person.name, groups=[name, f"x-{name}"])
    browser.signed_in_as(person)
    assert actor_of(company, person)["externalGroups"] == [f"urn:li:corpGroup:x-{name}"]
    members = "query ($input: ListGroupMembersInput!) { listGroupMembers(input: $input) { total } }"
    assert company.ask(members, {"input": {"groupUrn": made}}, actor=ADMIN)["listGroupMembers"]["total"] == 0
    refused = company.post(create, {"input": {"id": f"x-{name}", "name": name}}, actor=ADMIN)
    assert reason_of(refused) == (200, "already_exists")
    company.grant(groups=[made])  # to the group made here
    privileges = "query ($input: GetGrantedPrivilegesInput!) { getGrantedPrivileges(input: $input) { privileges } }"
    granted = company.ask(privileges, {"input": {"actorUrn": urn(person)}}, actor=ADMIN)["getGrantedPrivileges"]
    assert "GENERATE_PERSONAL_ACCESS_TOKENS" not in granted["privileges"]


def test_only_the_linked_person_signs_in_as_the_actor(
    browser: SignInBrowser,
    another: SignInBrowser,
    company: Server,
    person: ProviderUser,
    identity_provider: IdentityProvider,
) -> None:
    browser.signed_in_as(person)
    thief = identity_provider.add_user(f"thief-{person.name}", preferred_username=person.name)
    refused = another.sign_in_as(thief)
    assert refused.status_code == 403
    assert "do not belong together" in refused.text
    # The other way round: the same person under another name.
    identity_provider.change_user(person.name, preferred_username=f"renamed-{person.name}")
    assert browser.sign_in_as(person).status_code == 403
    subject = f"subject-of-{thief.name}"
    company.ask(LINK, {"input": {"actorUrn": urn(person), "subject": subject}}, actor=ADMIN)
    assert not browser.session()["signedIn"]  # the session was another person's
    assert another.sign_in_as(thief).status_code == 303
    taken = company.post(LINK, {"input": {"actorUrn": urn("other"), "subject": subject}}, actor=ADMIN)
    assert reason_of(taken) == (200, "identity_linked")


def test_group_of_a_policy_file_has_the_members_that_are_chosen_there(
    identity_provider: IdentityProvider, person: ProviderUser, tmp_path: Path, travel: Travel
) -> None:
    """Also if the provider had a group of this urn before, and when the file no longer declares it."""
    file, group = tmp_path / "policies.yaml", f"urn:li:corpGroup:{person.name}"
    policies = f"policies: [{{id: p, name: P, privileges: [MANAGE_POLICIES], actors: {{groups: ['{group}']}}}}]\n"
    file.write_text(policies)
    identity_provider.change_user(person.name, groups=[person.name])
    granted = "query ($input: GetGrantedPrivilegesInput!) { getGrantedPrivileges(input: $input) { privileges } }"

    def may(server: Server, actor: str) -> bool:
        found = server.ask(granted, {"input": {"actorUrn": actor}}, actor=ADMIN)["getGrantedPrivileges"]
        return "MANAGE_POLICIES" in found["privileges"]

    with signing_in_at(identity_provider.register, tmp_path, {"WATCHWORD_POLICY_FILE": str(file)}) as server:
        browser = travel(server).signed_in_as(person)
        assert may(server, urn(person))
        server.stop()
        file.write_text(policies + f"groups: [{{id: {person.name}, name: Made here, members: ['{urn('carol')}']}}]\n")
        server.start()
        assert (may(server, urn(person)), may(server, urn("carol"))) == (False, True)
        browser.signed_in_as(person)
        assert not may(server, urn(person))
        server.stop()
        file.write_text(policies)
        server.start()
        assert not may(server, urn("carol"))
        browser.signed_in_as(person)  # it is the provider's again
        assert (may(server, urn(person)), may(server, urn("carol"))) == (True, False)


def test_refused_sign_ins_of_others_do_not_lock_a_person_out(
    browser: SignInBrowser, another: SignInBrowser, person: ProviderUser, identity_provider: IdentityProvider
) -> None:
    browser.signed_in_as(person)
    thief = identity_provider.add_user(f"claims-{person.name}", preferred_username=person.name)
    # One below the failures that an address may have at once.
    assert {another.sign_in_as(thief).status_code for _ in range(40)} == {403}
    assert browser.sign_in_as(person).status_code == 303


def test_suspended_actor_is_out_at_the_next_request_and_cannot_return(
    browser: SignInBrowser, company: Server, person: ProviderUser
) -> None:
    browser.signed_in_as(person)
    company.set_status(urn(person), "SUSPENDED")
    assert browser.post().status_code == 401
    company.set_status(urn(person), "ACTIVE")
    assert browser.post().status_code == 401  # the session has ended
    company.set_status(urn(person), "SUSPENDED")
    assert browser.sign_in_as(person).status_code == 403
    company.set_status(urn(person), "ACTIVE")
    assert browser.sign_in_as(person).status_code == 303


def test_sign_out_ends_the_session_and_offers_that_of_the_provider(
    browser: SignInBrowser, person: ProviderUser
) -> None:
    browser.signed_in_as(person)
    answer = browser.sign_out()
    assert answer.status_code == 200
    url = httpx.URL(answer.json()["providerSignOutUrl"])
    assert url.params["post_logout_redirect_uri"] == f"{browser.url}/"
    assert not browser.session()["signedIn"]
    page = browser.http.get(url)
    assert page.status_code == 200, page.text


@pytest.mark.parametrize("is_sent", ["before the sign-in", "after it"])
def test_sign_in_ends_the_previous_session_of_the_browser(
    browser: SignInBrowser, another: SignInBrowser, person: ProviderUser, is_sent: str
) -> None:
    former = another.signed_in(actor=ADMIN).cookie
    if is_sent == "before the sign-in":  # a browser does not send a strict cookie when another site sends it back
        browser.http.cookies.set("watchword", former, domain="127.0.0.1")
        page = browser.go()
        browser.http.cookies.delete("watchword")
    else:
        page = browser.go()
        browser.http.cookies.set("watchword", former, domain="127.0.0.1")
    assert another.session()["signedIn"]
    answer = browser.follow(submit_login(browser.http, page, person))
    assert answer.status_code == 303, answer.text
    assert browser.session()["actorUrn"] == urn(person)
    assert reason_of(another.post()) == (401, "session_over")


def test_sign_out_at_the_provider_ends_the_session(
    browser: SignInBrowser,
    another: SignInBrowser,
    company: Server,
    person: ProviderUser,
    identity_provider: IdentityProvider,
) -> None:
    """By back-channel logout: of the session there, not of the same person's in another browser. A terminal that was
    approved in it gets no token.
    """
    browser.signed_in_as(person)
    another.signed_in_as(person)
    assert browser.session()["signedIn"]
    started = start(company)
    company.grant(urn(person))
    approve(browser, started)
    browser.sign_out_at(identity_provider)
    until(lambda: not browser.session()["signedIn"], "the console is signed out", 20)
    assert another.session()["signedIn"]
    assert outcome(poll(company, started)) == (400, "access_denied")


def test_sessions_are_listed_and_ended_by_their_owner_and_by_administrators(
    travel: Travel, company: Server, person: ProviderUser, identity_provider: IdentityProvider
) -> None:
    browser, another = travel(company).signed_in_as(person), travel(company).signed_in_as(person)
    mine = browser.ask(SESSIONS)["listSessions"]
    assert mine["total"] == 2
    assert sorted((one["method"], one["current"]) for one in mine["sessions"]) == [("OIDC", False), ("OIDC", True)]
    (other,) = [one["id"] for one in mine["sessions"] if not one["current"]]
    stranger = identity_provider.add_user(f"stranger-{person.name}")
    third = travel(company).signed_in_as(stranger)
    for whose in ({"actorUrn": urn(person)}, {"all": True}):
        assert reason_of(third.post(SESSIONS, {"input": whose})) == (200, "missing_privilege")
    everyone = company.ask(SESSIONS, {"input": {"all": True, "count": 100}}, actor=ADMIN)["listSessions"]
    assert {one["id"] for one in mine["sessions"]} < {one["id"] for one in everyone["sessions"]}
    assert reason_of(third.post(END, {"id": other})) == (200, "session_not_found")
    assert browser.ask(END, {"id": other}) == {"endSession": True}
    assert not another.session()["signedIn"]
    assert browser.session()["signedIn"]
    (left,) = company.ask(SESSIONS, {"input": {"actorUrn": urn(person)}}, actor=ADMIN)["listSessions"]["sessions"]
    company.ask(END, {"id": left["id"]}, actor=ADMIN)
    assert reason_of(browser.post()) == (401, "session_over")


def test_session_ends_when_it_is_not_used(browser: SignInBrowser, company: Server, person: ProviderUser) -> None:
    browser.signed_in_as(person)

    def age(minutes: int) -> int:
        """Make the session's last request so old; returns when that was."""
        with closing(sqlite3.connect(company.data_dir / "watchword.db")) as store, store:
            set_back = "UPDATE sessions SET seen_at = seen_at - ? WHERE actor_urn = ? RETURNING seen_at"
            ((at,),) = store.execute(set_back, (minutes * 60_000, urn(person))).fetchall()
        return int(at)

    before = age(100)
    assert browser.session()["signedIn"]
    assert age(0) > before  # it is noted that it is in use
    age(121)
    assert reason_of(browser.post()) == (401, "session_over")


def test_groups_are_dropped_after_days_without_a_sign_in(
    identity_provider: IdentityProvider, person: ProviderUser, tmp_path: Path, travel: Travel
) -> None:
    with signing_in_at(identity_provider.register, tmp_path, {"WATCHWORD_OIDC_GROUPS_DAYS": "7"}) as server:
        travel(server).signed_in_as(person)
        server.stop()
        with closing(sqlite3.connect(server.data_dir / "watchword.db")) as store, store:
            store.execute("UPDATE identities SET signed_in_at = signed_in_at - 8 * 86400000")
        server.start()
        until(lambda: actor_of(server, person)["externalGroups"] == [], "the groups are dropped")
        assert actions(server, person)[-1] == "actor.groups_changed"


def test_sessions_are_listed_and_ended_on_the_command_line(
    browser: SignInBrowser, company: Server, person: ProviderUser
) -> None:
    browser.signed_in_as(person)
    token = company.create(ADMIN)["accessToken"]
    env = {"WATCHWORD_URL": company.url, "WATCHWORD_TOKEN": token}
    listed = watchword("session", "list", "--actor", urn(person), "--json", env=env)
    (session,) = json.loads(listed.stdout)
    assert (session["method"], session["current"]) == ("OIDC", False)
    assert watchword("session", "end", session["id"], "--yes", env=env).stdout == f"Ended {session['id']}\n"
    assert not browser.session()["signedIn"]
    again = watchword("session", "end", session["id"], "--yes", env=env)
    assert (again.returncode, "no session with this id" in again.stderr) == (1, True)


def test_keys_of_the_provider_may_rotate(tmp_path: Path, travel: Travel) -> None:
    """An unknown key is looked up at once."""
    with (
        IdentityProvider(tmp_path / "provider") as provider,
        signing_in_at(provider.register, tmp_path / "one") as server,
    ):
        user = provider.add_user("erin")
        browser = travel(server)
        page = browser.go()  # the keys of now are known
        provider.rotate_keys()
        assert page.status_code == 200
        assert browser.sign_in_as(user).status_code == 303


def test_offboarded_person_is_in_no_group_and_signed_in_nowhere(
    browser: SignInBrowser, company: Server, person: ProviderUser
) -> None:
    browser.signed_in_as(person)
    offboard = (
        "mutation ($input: OffboardActorInput!) { offboardActor(input: $input) { receipt { groups sessionCount } } }"
    )
    done = company.ask(offboard, {"input": {"urn": urn(person), "dryRun": False}}, actor=ADMIN)["offboardActor"]
    assert done["receipt"] == {"groups": ["urn:li:corpGroup:staff"], "sessionCount": 1}
    assert actor_of(company, person)["externalGroups"] == []


def test_public_client_and_claims_only_at_userinfo(tmp_path: Path, travel: Travel) -> None:
    with (
        IdentityProvider(tmp_path / "provider", claims_in_id_token=False) as provider,
        signing_in_at(lambda url: provider.register(url, public=True), tmp_path / "server") as server,
    ):
        user = provider.add_user("carol", "staff")
        browser = travel(server).signed_in_as(user)
        assert browser.session()["actorUrn"] == urn(user)
        assert actor_of(server, user)["externalGroups"] == ["urn:li:corpGroup:staff"]


def test_provider_away_stops_sign_ins_but_not_sessions_and_tokens(tmp_path: Path, travel: Travel) -> None:
    with ExitStack() as stack:
        with IdentityProvider(tmp_path / "provider") as provider:
            server = stack.enter_context(signing_in_at(provider.register, tmp_path / "one"))
            user = provider.add_user("dora")
            browser = travel(server).signed_in_as(user)
            server.grant(urn(user))
            token = server.create(urn(user))["accessToken"]
            server.stop()
        server.start()
        away = browser.go()
        assert away.status_code == 503
        assert "does not answer" in away.text
        assert browser.session()["signedIn"]
        assert server.verify(token).status_code == 204
        assert "identity provider" in server.err.read_text() + server.out.read_text()


@pytest.mark.parametrize(
    ("env", "claims", "told"),
    [
        ({"WATCHWORD_OIDC_ALLOWED": "groups=staff,hd=example.com"}, {"groups": ["staff"]}, "hd"),
        ({"WATCHWORD_OIDC_ALLOWED": "groups=board"}, {"groups": ["staff"]}, "groups"),
        ({}, {"preferred_username": None}, "preferred_username"),
        ({}, {"preferred_username": "__system"}, "reserved"),
        ({}, {"preferred_username": "service_1b4e28ba-2fa1-4d3b-a3f5-ef19b5a7633b"}, "service account"),
        ({}, {"preferred_username": "admin"}, "root actor"),
        ({}, {"preferred_username": "with space"}, "urn"),
        ({"WATCHWORD_OIDC_ACTOR": "urn:li:corpuser:{email}"}, {"email_verified": False}, "verified"),
        (OF_ANN, {"email": ANN, "email_verified": False}, "verified"),
        (OF_ANN, {"email": ANN, "email_verified": None}, "verified"),
        (OF_ANN, {"email": ANN, "email_verified": "yes"}, "verified"),
        ({}, {"groups": [f"group {n}" for n in range(501)]}, "500"),
        ({}, {"groups": [["staff"]]}, "groups"),
    ],
)
def test_claims_that_name_nobody_who_may_sign_in(
    identity_provider: IdentityProvider,
    make_company: Callable[..., Server],
    travel: Travel,
    env: dict[str, str],
    claims: dict[str, Any],
    told: str,
) -> None:
    server = make_company(env)
    user = identity_provider.add_user(f"refused-{next(_numbers)}", **claims)
    browser = travel(server)
    answer = browser.sign_in_as(user)
    assert answer.status_code == 403, answer.text
    assert told in answer.text
    assert browser.session_cookie is None


@pytest.mark.parametrize("verified", [True, "true"])  # as Amazon Cognito sends it
def test_allowed_address_signs_in_if_it_is_verified(
    identity_provider: IdentityProvider, make_company: Callable[..., Server], travel: Travel, verified: object
) -> None:
    user = identity_provider.add_user(f"allowed-{next(_numbers)}", email=ANN, email_verified=verified)
    travel(make_company(OF_ANN)).signed_in_as(user)


@pytest.fixture(scope="module")
def make_company(
    identity_provider: IdentityProvider, company: Server, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Callable[..., Server]]:
    made: dict[tuple[tuple[str, str], ...], Server] = {(): company}
    with ExitStack() as stack:

        def make(env: dict[str, str]) -> Server:
            key = tuple(env.items())
            if key not in made:
                folder = tmp_path_factory.mktemp("company")
                made[key] = stack.enter_context(signing_in_at(identity_provider.register, folder, env))
            return made[key]

        yield make
