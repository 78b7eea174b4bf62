"""What an import from DataHub writes: once, and never what was revoked here."""

from tests.contract.harness import ANN, BOB, EVE, HOUR, SYSTEM, StoreHarness, record
from tests.support.backends import NOW, StoreLocation
from watchword.authority.callers import ActorStatus
from watchword.datahub.rules import ImportedPerson, ImportStatus, PersonChange, TokenMatch
from watchword.datahub.store import ImportStore
from watchword.tokens.rules import TokenRecord


def bring(harness: StoreHarness, *records: TokenRecord, dry_run: bool = False) -> list[TokenMatch]:
    return harness.run(ImportStore(harness.store).import_tokens(SYSTEM, records, dry_run=dry_run))


def test_token_that_was_revoked_and_purged_here_does_not_come_again(
    harness: StoreHarness, location: StoreLocation
) -> None:
    token, forever = record(1, expires_at=NOW + 9 * HOUR), record(2, expires_at=None)
    assert bring(harness, token, forever, dry_run=True) == [TokenMatch.NEW, TokenMatch.NEW]
    assert harness.total() == 0
    assert bring(harness, token, forever) == [TokenMatch.NEW, TokenMatch.NEW]
    assert bring(harness, token, forever) == [TokenMatch.UNCHANGED, TokenMatch.UNCHANGED]
    harness.revoke(token)
    harness.revoke(forever)
    assert bring(harness, token, forever) == [TokenMatch.DEAD, TokenMatch.DEAD]
    harness.clock.now = NOW + HOUR
    assert harness.run(harness.store.purge_tokens(NOW + HOUR, 100)) == 2
    assert bring(harness, token, forever) == [TokenMatch.DEAD, TokenMatch.DEAD]
    # DataHub lets it live longer: so does the memory of it.
    later = token._replace(expires_at=NOW + 20 * HOUR)
    assert bring(harness, later) == [TokenMatch.DEAD_CHANGED]
    harness.run(harness.store.purge_tokens(NOW + 10 * HOUR, 100))
    assert bring(harness, later) == [TokenMatch.DEAD]
    assert bring(harness, token) == [TokenMatch.DEAD_CHANGED]
    # Once it has expired in DataHub, only that keeps it from coming.
    harness.run(harness.store.purge_tokens(NOW + 10 * HOUR, 100))
    assert bring(harness, token, forever, dry_run=True) == [TokenMatch.NEW, TokenMatch.DEAD]
    assert location.problems() == []


def test_earlier_expiry_counts_for_derived_tokens_too(harness: StoreHarness, location: StoreLocation) -> None:
    token = record(1, expires_at=NOW + 9 * HOUR)
    bring(harness, token)
    child = harness.derive(2, token)
    assert bring(harness, token._replace(expires_at=NOW + HOUR)) == [TokenMatch.SHORTENED]
    kept = harness.stored(child)
    assert kept is not None
    assert kept.expires_at == NOW + HOUR
    assert location.problems() == []


def test_imported_tokens_are_listed_in_order_and_revoked_with_their_children(
    harness: StoreHarness, location: StoreLocation
) -> None:
    tokens = sorted((record(number) for number in range(1, 6)), key=lambda token: token.id)
    bring(harness, *tokens)
    own = harness.token(9)
    child = harness.derive(10, tokens[0])
    ids = [token.id for token in tokens]
    assert harness.run(ImportStore(harness.store).imported_tokens("", "~", 3)) == ids[:3]
    assert harness.run(ImportStore(harness.store).imported_tokens(ids[0], ids[3], 9)) == ids[1:4]
    assert harness.run(ImportStore(harness.store).revoke_imported(SYSTEM, [ids[0], own.id])) == 2
    assert harness.live_numbers(own) == [9]
    assert harness.live_numbers(child) == []
    assert harness.run(ImportStore(harness.store).imported_tokens("", "~", 9)) == ids[1:]
    detail = [event.detail for event in location.events() if event.action == "token.revoked"]
    assert [found["source"] for found in detail] == ["datahub", "datahub"]
    status = harness.run(ImportStore(harness.store).import_status())
    assert status == ImportStatus(5, 4, 0, 0, tokens[1].expires_at, None)
    harness.run(harness.store.set_actor_status(harness.precondition(), ANN, ActorStatus.SUSPENDED))
    assert harness.run(ImportStore(harness.store).import_status()).live == 0


def test_import_resumes_only_whom_it_suspended(harness: StoreHarness) -> None:
    def people(*, suspended: bool | None) -> list[tuple[str, PersonChange]]:
        wanted = [ImportedPerson(urn, suspended, "A name") for urn in (ANN, BOB)]
        found = harness.run(ImportStore(harness.store).import_people(SYSTEM, wanted, dry_run=False))
        return [(person.urn, change) for person, change in found]

    harness.run(harness.store.set_actor_status(harness.precondition(), BOB, ActorStatus.SUSPENDED))
    named = [(ANN, PersonChange.NAMED), (BOB, PersonChange.NAMED)]
    assert people(suspended=True) == [(ANN, PersonChange.SUSPENDED), *named]
    assert people(suspended=None) == []
    assert people(suspended=False) == [(ANN, PersonChange.RESUMED), (BOB, PersonChange.STAYS_SUSPENDED)]
    suspended = harness.run(harness.store.suspended_among([ANN, BOB, EVE]))
    assert suspended == {BOB}
