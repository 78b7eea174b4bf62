"""Limits, derived tokens, rotation, revocation and service accounts, by the client."""

import hashlib
from datetime import timedelta

import pytest

from tests.support.both_clients import Clients
from tests.support.server import ADMIN, GENERATE, Server
from watchword.client import ActorTokenCount, BadRequest, Conflict, NotFound, TokenFilter, Unauthenticated


def test_token_is_made_with_limits_and_its_record_has_them(server: Server, connect: Clients, actor: str) -> None:
    server.grant(actor, scopes=("orders:*",))
    made = connect(server.url, actor=actor).create_token(
        actor,
        "laptop",
        duration="ONE_DAY",
        scopes=["orders:read", GENERATE],
        audience=[server.url, "https://api.example"],
        networks=["127.0.0.0/8"],
    )
    assert made.metadata.scopes == (GENERATE, "orders:read")
    assert set(made.metadata.audience or ()) == {server.url, "https://api.example"}
    assert made.metadata.allowed_networks == ("127.0.0.0/8",)
    identity = connect(server.url, token=made.token).verify_token()
    assert (identity.urn, identity.token_id) == (actor, made.metadata.id)
    assert identity.scopes == (GENERATE, "orders:read")


def test_empty_limit_allows_nothing_and_a_word_in_place_of_a_list_is_a_wrong_argument(
    server: Server, connect: Clients, actor: str
) -> None:
    client = connect(server.url, actor=ADMIN)
    made = client.create_token(actor, "none", duration="ONE_DAY", scopes=[])
    assert (made.metadata.scopes, made.metadata.audience) == ((), None)
    assert connect(server.url, token=made.token).granted_privileges(actor) == ()
    with pytest.raises(ValueError, match="scopes must be a list"):
        client.create_token(actor, "x", duration="ONE_DAY", scopes="orders:read")
    with pytest.raises(BadRequest) as refused:
        client.create_token(actor, "x", duration="ONE_DAY", networks=["10.0.0.1/8"])
    assert (refused.value.field, refused.value.argument) == ("allowedNetworks[0]", "networks[0]")
    assert str(refused.value).startswith("networks[0] must be a CIDR network")
    assert refused.value.message.startswith("allowedNetworks[0] must be a CIDR network")


def test_name_and_description_are_edited(server: Server, connect: Clients, actor: str) -> None:
    client = connect(server.url, actor=ADMIN)
    made = client.create_token(actor, "laptop", duration="ONE_DAY", description="old").metadata
    assert client.update_token(made.id, name="desktop").description == "old"
    shown = client.update_token(made.urn, description="")
    assert (shown.name, shown.description) == ("desktop", None)
    assert client.get_token(made.id).name == "desktop"


def test_token_derives_a_narrower_one_that_dies_with_it(server: Server, connect: Clients, actor: str) -> None:
    server.grant(actor, scopes=("a",))
    parent = connect(server.url, actor=actor).create_token(actor, "parent", duration="ONE_DAY", scopes=[GENERATE, "a"])
    holder = connect(server.url, token=parent.token)
    child = holder.derive_token("child", duration=timedelta(minutes=5), scopes=["a"])
    heir = holder.derive_token("heir")
    assert (child.metadata.parent_id, child.metadata.scopes) == (parent.metadata.id, ("a",))
    assert child.metadata.expires_at == child.metadata.created_at + timedelta(minutes=5)
    assert (heir.metadata.expires_at, heir.metadata.scopes) == (parent.metadata.expires_at, parent.metadata.scopes)
    with pytest.raises(BadRequest) as refused:
        holder.derive_token("wider", scopes=["b"])
    assert refused.value.field == "scopes"
    connect(server.url, actor=ADMIN).revoke_token(parent.metadata.id)
    with pytest.raises(Unauthenticated):
        connect(server.url, token=child.token).verify_token()


def test_cascade_ends_what_was_minted_too(server: Server, connect: Clients, actor: str) -> None:
    server.grant(actor)
    first = connect(server.url, actor=actor).create_token(actor, "first", duration="ONE_DAY")
    minted = connect(server.url, token=first.token).create_token(actor, "minted", duration="ONE_DAY")
    assert minted.metadata.created_with == first.metadata.id
    admin = connect(server.url, actor=ADMIN)
    admin.revoke_token(first.metadata.id, cascade=True)
    assert admin.get_token(minted.metadata.id).status == "REVOKED"


def test_token_is_rotated_and_the_old_one_ends_after_the_grace(server: Server, connect: Clients, actor: str) -> None:
    server.grant(actor)
    old = connect(server.url, actor=actor).create_token(actor, "laptop", duration="ONE_DAY")
    holder = connect(server.url, token=old.token)
    new = holder.rotate_token(old.metadata.urn, overlap=timedelta(hours=1), grace="PT0S")
    assert (new.metadata.replaces, new.metadata.awaits_first_use) == (old.metadata.id, True)
    assert new.metadata.expires_at == new.metadata.created_at + timedelta(hours=1)
    assert new.metadata.expires_at_once_used == new.metadata.created_at + timedelta(days=1)
    assert holder.verify_token().token_id == old.metadata.id
    assert connect(server.url, token=new.token).verify_token().token_id == new.metadata.id
    with pytest.raises(Unauthenticated) as refused:
        holder.verify_token()
    assert refused.value.reason == "token_expired"
    replaced = connect(server.url, actor=ADMIN).get_token(old.metadata.id)
    assert (replaced.replaced_by, replaced.replaced_at is None) == (new.metadata.id, False)


def test_client_bulk_revocation_has_a_dry_run_and_a_receipt(server: Server, connect: Clients, actor: str) -> None:
    client = connect(server.url, actor=ADMIN)
    ids = sorted(client.create_token(actor, name, duration="ONE_DAY").metadata.id for name in ("a1", "a2", "b"))
    some = (TokenFilter("actorUrn", actor), TokenFilter("name", "a", condition="START_WITH"))
    plan = client.plan_revocation(*some)
    assert (plan.count, plan.actors) == (2, (ActorTokenCount(actor, None, 2),))
    assert client.plan_revocation(ids=ids).count == 3
    with pytest.raises(Conflict) as refused:
        client.revoke_tokens(*some, at_most=1)
    assert refused.value.reason == "more_than_allowed_for"
    assert client.revoke_tokens(*some, at_most=plan.count).count == 2
    receipt = client.revoke_tokens(ids=ids)
    left = [token.id for token in client.tokens(TokenFilter("actorUrn", actor), TokenFilter("status", "REVOKED"))]
    assert (receipt.count, len(left)) == (1, 3)
    (last,) = {token_id for token_id in left if client.get_token(token_id).name == "b"}
    assert receipt.digest == hashlib.sha256(f"{last}\n".encode()).hexdigest()
    assert client.get_token(last).revoked_at == receipt.revoked_at


def test_revoking_everything_needs_an_explicit_argument(server: Server, connect: Clients) -> None:
    with pytest.raises(BadRequest) as refused:
        connect(server.url, actor=ADMIN).plan_revocation()
    assert (refused.value.field, refused.value.argument) == ("all", "all_actors")
    assert connect(server.url, actor=ADMIN).plan_revocation(all_actors=True).count >= 0


def test_holder_revokes_a_token_without_credential(server: Server, connect: Clients, actor: str) -> None:
    made = connect(server.url, actor=ADMIN).create_token(actor, "lost", duration="ONE_DAY")
    stranger = connect(server.url)
    stranger.revoke_by_possession(made.token)
    stranger.revoke_by_possession(made.token)
    stranger.revoke_by_possession("no.such.token")
    with pytest.raises(Unauthenticated):
        connect(server.url, token=made.token).verify_token()
    with pytest.raises(BadRequest) as refused:
        stranger.revoke_by_possession("")
    assert refused.value.reason == "invalid_request"


def test_client_reads_the_published_keys_without_credential(server: Server, connect: Clients) -> None:
    assert all(key["kty"] == "OKP" for key in connect(server.url).jwks()["keys"])


def test_service_account_is_made_found_used_and_deleted(server: Server, connect: Clients, actor: str) -> None:
    client = connect(server.url, actor=ADMIN)
    made = client.create_service_account(f"CI of {actor}", description="Builds.")
    assert (made.display_name, made.description, made.created_by) == (f"CI of {actor}", "Builds.", ADMIN)
    token = client.create_token(made.urn, "nightly", duration="ONE_DAY")
    assert token.metadata.token_type == "SERVICE_ACCOUNT"
    assert connect(server.url, token=token.token).me().urn == made.urn
    assert client.get_service_account(made.urn) == made
    assert [found.urn for found in client.service_accounts(query=actor)] == [made.urn]
    client.delete_service_account(made.urn)
    with pytest.raises(Unauthenticated):
        connect(server.url, token=token.token).me()
    with pytest.raises(NotFound):
        client.get_service_account(made.urn)


def test_service_accounts_are_walked_to_the_end(server: Server, connect: Clients, actor: str) -> None:
    client = connect(server.url, actor=ADMIN)
    made = {client.create_service_account(f"{number} of {actor}").urn for number in range(5)}
    assert {account.urn for account in client.service_accounts(query=f"of {actor}", page_size=2)} == made


def test_dead_token_cannot_be_rotated(server: Server, connect: Clients, actor: str) -> None:
    client = connect(server.url, actor=ADMIN)
    made = client.create_token(actor, "dead", duration="ONE_DAY").metadata
    client.revoke_token(made.id)
    with pytest.raises(Conflict):
        client.rotate_token(made.id)
