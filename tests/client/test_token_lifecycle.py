"""Limits, derived tokens, rotation, revocation and service accounts, by the client."""

import hashlib
from datetime import timedelta

import pytest

from tests.support.both_clients import Clients
from tests.support.server import ADMIN, GENERATE, Server
from watchword.client import ActorTokenCount, BadRequest, Conflict, NotFound, TokenFilter, Unauthenticated


def test_token_is_made_with_limits_and_its_record_has_them(server: Server, connect: Clients, actor: str) -> None:
    server.grant(actor, scopes=("orders:*",))
    made = connect(server.url, actor=actor).tokens.create(
        actor,
        "laptop",
        duration="ONE_DAY",
        scopes=["orders:read", GENERATE],
        audience=[server.url, "https://api.example"],
        allowed_networks=["127.0.0.0/8"],
    )
    assert made.metadata.scopes == (GENERATE, "orders:read")
    assert set(made.metadata.audience or ()) == {server.url, "https://api.example"}
    assert made.metadata.allowed_networks == ("127.0.0.0/8",)
    identity = connect(server.url, token=made.token).tokens.verify()
    assert (identity.urn, identity.token_id) == (actor, made.metadata.id)
    assert identity.scopes == (GENERATE, "orders:read")


def test_empty_limit_allows_nothing_and_a_word_in_place_of_a_list_is_a_wrong_argument(
    server: Server, connect: Clients, actor: str
) -> None:
    client = connect(server.url, actor=ADMIN)
    made = client.tokens.create(actor, "none", duration="ONE_DAY", scopes=[])
    assert (made.metadata.scopes, made.metadata.audience) == ((), None)
    assert connect(server.url, token=made.token).privileges.granted(actor) == ()
    with pytest.raises(ValueError, match="scopes must be a list"):
        client.tokens.create(actor, "x", duration="ONE_DAY", scopes="orders:read")
    with pytest.raises(BadRequest) as refused:
        client.tokens.create(actor, "x", duration="ONE_DAY", allowed_networks=["10.0.0.1/8"])
    assert (refused.value.field, refused.value.argument) == ("allowedNetworks[0]", "allowed_networks[0]")
    assert str(refused.value).startswith("allowed_networks[0] must be a CIDR network")
    assert refused.value.message.startswith("allowedNetworks[0] must be a CIDR network")


def test_name_and_description_are_edited(server: Server, connect: Clients, actor: str) -> None:
    client = connect(server.url, actor=ADMIN)
    made = client.tokens.create(actor, "laptop", duration="ONE_DAY", description="old").metadata
    assert client.tokens.update(made.id, name="desktop").description == "old"
    shown = client.tokens.update(made.urn, description="")
    assert (shown.name, shown.description) == ("desktop", None)
    assert client.tokens.get(made.id).name == "desktop"


def test_token_derives_a_narrower_one_that_dies_with_it(server: Server, connect: Clients, actor: str) -> None:
    server.grant(actor, scopes=("a",))
    parent = connect(server.url, actor=actor).tokens.create(actor, "parent", duration="ONE_DAY", scopes=[GENERATE, "a"])
    holder = connect(server.url, token=parent.token)
    child = holder.tokens.derive("child", duration=timedelta(minutes=5), scopes=["a"])
    heir = holder.tokens.derive("heir")
    assert (child.metadata.parent_id, child.metadata.scopes) == (parent.metadata.id, ("a",))
    assert child.metadata.expires_at == child.metadata.created_at + timedelta(minutes=5)
    assert (heir.metadata.expires_at, heir.metadata.scopes) == (parent.metadata.expires_at, parent.metadata.scopes)
    with pytest.raises(BadRequest) as refused:
        holder.tokens.derive("wider", scopes=["b"])
    assert refused.value.field == "scopes"
    connect(server.url, actor=ADMIN).tokens.revoke(parent.metadata.id)
    with pytest.raises(Unauthenticated):
        connect(server.url, token=child.token).tokens.verify()


def test_cascade_ends_what_was_minted_too(server: Server, connect: Clients, actor: str) -> None:
    server.grant(actor)
    first = connect(server.url, actor=actor).tokens.create(actor, "first", duration="ONE_DAY")
    minted = connect(server.url, token=first.token).tokens.create(actor, "minted", duration="ONE_DAY")
    assert minted.metadata.created_with == first.metadata.id
    admin = connect(server.url, actor=ADMIN)
    admin.tokens.revoke(first.metadata.id, cascade=True)
    assert admin.tokens.get(minted.metadata.id).status == "REVOKED"


def test_token_is_rotated_and_the_old_one_ends_after_the_grace(server: Server, connect: Clients, actor: str) -> None:
    server.grant(actor)
    old = connect(server.url, actor=actor).tokens.create(actor, "laptop", duration="ONE_DAY")
    holder = connect(server.url, token=old.token)
    new = holder.tokens.rotate(old.metadata.urn, overlap=timedelta(hours=1), grace="PT0S")
    assert (new.metadata.replaces, new.metadata.awaits_first_use) == (old.metadata.id, True)
    assert new.metadata.expires_at == new.metadata.created_at + timedelta(hours=1)
    assert new.metadata.expires_at_once_used == new.metadata.created_at + timedelta(days=1)
    assert holder.tokens.verify().token_id == old.metadata.id
    assert connect(server.url, token=new.token).tokens.verify().token_id == new.metadata.id
    with pytest.raises(Unauthenticated) as refused:
        holder.tokens.verify()
    assert refused.value.reason == "token_expired"
    replaced = connect(server.url, actor=ADMIN).tokens.get(old.metadata.id)
    assert (replaced.replaced_by, replaced.replaced_at is None) == (new.metadata.id, False)


def test_client_bulk_revocation_has_a_dry_run_and_a_receipt(server: Server, connect: Clients, actor: str) -> None:
    client = connect(server.url, actor=ADMIN)
    ids = sorted(client.tokens.create(actor, name, duration="ONE_DAY").metadata.id for name in ("a1", "a2", "b"))
    some = (TokenFilter("actorUrn", actor), TokenFilter("name", "a", condition="START_WITH"))
    plan = client.tokens.plan_revocation(*some)
    assert (plan.count, plan.actors) == (2, (ActorTokenCount(actor, None, 2),))
    assert client.tokens.plan_revocation(ids=ids).count == 3
    with pytest.raises(Conflict) as refused:
        client.tokens.revoke_many(*some, at_most=1)
    assert refused.value.reason == "more_than_allowed_for"
    assert client.tokens.revoke_many(*some, at_most=plan.count).count == 2
    receipt = client.tokens.revoke_many(ids=ids)
    left = [token.id for token in client.tokens.list(TokenFilter("actorUrn", actor), TokenFilter("status", "REVOKED"))]
    assert (receipt.count, len(left)) == (1, 3)
    (last,) = {token_id for token_id in left if client.tokens.get(token_id).name == "b"}
    assert receipt.digest == hashlib.sha256(f"{last}\n".encode()).hexdigest()
    assert client.tokens.get(last).revoked_at == receipt.revoked_at


def test_revoking_everything_needs_an_explicit_argument(server: Server, connect: Clients) -> None:
    with pytest.raises(BadRequest) as refused:
        connect(server.url, actor=ADMIN).tokens.plan_revocation()
    assert (refused.value.field, refused.value.argument) == ("all", "all")
    assert connect(server.url, actor=ADMIN).tokens.plan_revocation(all=True).count >= 0


def test_holder_revokes_a_token_without_credential(server: Server, connect: Clients, actor: str) -> None:
    made = connect(server.url, actor=ADMIN).tokens.create(actor, "lost", duration="ONE_DAY")
    stranger = connect(server.url)
    stranger.tokens.revoke_by_possession(made.token)
    stranger.tokens.revoke_by_possession(made.token)
    stranger.tokens.revoke_by_possession("no.such.token")
    with pytest.raises(Unauthenticated):
        connect(server.url, token=made.token).tokens.verify()
    with pytest.raises(BadRequest) as refused:
        stranger.tokens.revoke_by_possession("")
    assert refused.value.reason == "invalid_request"


def test_client_reads_the_published_keys_without_credential(server: Server, connect: Clients) -> None:
    assert all(key["kty"] == "OKP" for key in connect(server.url).jwks()["keys"])


def test_service_account_is_made_found_used_and_deleted(server: Server, connect: Clients, actor: str) -> None:
    client = connect(server.url, actor=ADMIN)
    made = client.accounts.create(f"CI of {actor}", description="Builds.")
    assert (made.display_name, made.description, made.created_by) == (f"CI of {actor}", "Builds.", ADMIN)
    token = client.tokens.create(made.urn, "nightly", duration="ONE_DAY")
    assert token.metadata.token_type == "SERVICE_ACCOUNT"
    assert connect(server.url, token=token.token).me().urn == made.urn
    assert client.accounts.get(made.urn) == made
    assert [found.urn for found in client.accounts.list(query=actor)] == [made.urn]
    client.accounts.delete(made.urn)
    with pytest.raises(Unauthenticated):
        connect(server.url, token=token.token).me()
    with pytest.raises(NotFound):
        client.accounts.get(made.urn)


def test_service_accounts_are_walked_to_the_end(server: Server, connect: Clients, actor: str) -> None:
    client = connect(server.url, actor=ADMIN)
    made = {client.accounts.create(f"{number} of {actor}").urn for number in range(5)}
    assert {account.urn for account in client.accounts.list(query=f"of {actor}", page_size=2)} == made


def test_dead_token_cannot_be_rotated(server: Server, connect: Clients, actor: str) -> None:
    client = connect(server.url, actor=ADMIN)
    made = client.tokens.create(actor, "dead", duration="ONE_DAY").metadata
    client.tokens.revoke(made.id)
    with pytest.raises(Conflict):
        client.tokens.rotate(made.id)
