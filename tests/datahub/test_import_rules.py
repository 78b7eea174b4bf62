"""`watchword import datahub` from an export file: what is imported and skipped, and how later runs follow DataHub."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cli.in_process import watchword
from tests.support.datahub_rows import Row, aspect, group, new_token, person, policy, token_row, write_export
from tests.support.datahub_tokens import DAY, SALT, DataHubToken, datahub_token
from tests.support.postgres import Home
from tests.support.preloaded import without_settings
from tests.support.server import ADMIN, CREATE, Server
from tests.support.store_file import change_store, look
from tests.support.waiting import until
from watchword.basics.names import MAX_NAME

ANN, BOB, CAROL = (f"urn:li:corpuser:{name}" for name in ("ann", "bob", "carol"))
SYSTEM = "urn:li:corpuser:__datahub_system"
ACCOUNT = "urn:li:corpuser:service_6f2c1a34-0b6d-4a51-9a53-0c2f6a1b7e11"
OPS = "urn:li:corpGroup:ops"
ENV = {"WATCHWORD_DATAHUB_SALT": SALT}
WANTED = {"type": "PERSONAL", "actorUrn": ANN, "duration": "ONE_HOUR", "name": "made here"}
REMOVALS = [(what, outcome, None) for what in ("groups", "policies") for outcome in ("changed", "removed")]
GROUPS = "{ listGroups(input: {}) { groups { name description } } }"
IMPORTED = (
    "query ($input: ListAccessTokensInput) { listAccessTokens(input: $input) { total tokens { id name tokenType } } }"
)


class Import:
    """Runs the command on a server's store."""

    def __init__(self, server: Server, env: dict[str, str], folder: Path) -> None:
        self.server = server
        self.env = env
        self.file = folder / "export.jsonl"
        self.refused: str = ""

    def __call__(self, rows: list[Row], *flags: str, code: int = 0) -> dict[tuple[str, str, str | None], int]:
        """The counts of the report, by noun, outcome and reason."""
        write_export(self.file, rows)
        flags = ("--from", str(self.file), "--json", "--data-dir", str(self.server.data_dir), *flags)
        done = watchword("import", "datahub", *flags, env=self.env)
        assert done.returncode == code, done.stderr
        self.refused = done.stderr
        if not done.stdout:
            return {}
        return {
            (line["what"], line["outcome"], line["reason"]): line["count"] for line in json.loads(done.stdout)["lines"]
        }

    def accepts(self, token: DataHubToken) -> bool:
        return self.server.verify(token.token).status_code == 204


@pytest.fixture(params=["sqlite", "postgres"])
def run_import(request: pytest.FixtureRequest, make_server: Callable[..., Server], tmp_path: Path) -> Import:
    env = dict(ENV)
    if request.param == "postgres":
        database: Home = request.getfixturevalue("database")
        env |= database.env
    return Import(make_server("--local-mode", "on", env=env), env, tmp_path)


def test_every_kind_of_row_comes_or_is_reported_with_its_reason(run_import: Import) -> None:
    server = run_import.server
    server.grant(CAROL)  # a policy created here stays
    (anns, row), (accounts, account_row), (roots, root_row) = map(new_token, (ANN, ACCOUNT, ADMIN))
    bobs, ghosts, systems, never, expired, bad_end = (
        datahub_token(urn) for urn in (BOB, "urn:li:corpuser:ghost", SYSTEM, ANN, ANN, ANN)
    )
    named = [datahub_token(ANN) for _ in range(3)]
    rows = [
        *person(ANN, corpUserInfo={"active": True, "displayName": "Ann", "email": "ann@example.org"},
                nativeGroupMembership={"nativeGroups": [OPS]}),
        *person(BOB, corpUserStatus={"status": "SUSPENDED"}, corpUserEditableInfo={"displayName": "Bob\u202e\n"}),
        *person(ACCOUNT, corpUserInfo={"active": True, "displayName": "Airflow"},
                subTypes={"typeNames": ["SERVICE_ACCOUNT"]}),
        *person(ADMIN), *person(SYSTEM), *group(OPS, displayName="Operations"),
        *group("urn:li:corpGroup:old"), aspect("urn:li:corpGroup:old", "status", {"removed": True}),
        row, account_row, root_row, token_row(bobs), token_row(ghosts), token_row(systems),
        token_row(never, expiresAt=None), token_row(expired, expiresAt=1_000), token_row(bad_end, expiresAt="soon"),
        token_row(named[0], name=""), token_row(named[1], name="x" * 500 + "\u0000"), token_row(named[2], name=7),
        aspect(named[0].urn, "dataHubAccessTokenInfo", {"name": "an old version"}, version=1),
        aspect("urn:li:dataHubAccessToken:short", "dataHubAccessTokenInfo", {"actorUrn": ANN}),
        aspect(datahub_token(ANN).urn, "dataHubAccessTokenInfo", "{not JSON"),
        aspect("urn:li:dataset:(urn:li:dataPlatform:hive,x,PROD)", "status", {"removed": False}),
        policy("tokens", privileges=["GENERATE_PERSONAL_ACCESS_TOKENS", "MANAGE_DOMAINS"],
               actors={"groups": [OPS], "users": [SYSTEM], "roles": ["urn:li:dataHubRole:Admin"]}),
        policy("roles", privileges=["MANAGE_POLICIES"], actors={"roles": ["urn:li:dataHubRole:Admin"]}),
        policy("views", privileges=["MANAGE_GLOBAL_VIEWS"], actors={"allUsers": True}),
        policy("catalogue", type="METADATA", privileges=["EDIT_ENTITY"], actors={"allUsers": True}),
    ]  # fmt: skip

    planned = run_import(rows, "--dry-run")
    assert server.tokens()["total"] == 0
    assert not run_import.accepts(anns)

    done = run_import(rows)
    without = f"comes without privileges MANAGE_DOMAINS; roles urn:li:dataHubRole:Admin; users {SYSTEM}"
    assert done == planned
    assert done == {
        ("people", "changed", "name or e-mail address"): 2,
        ("people", "suspended", None): 1,
        ("people", "unchanged", None): 1,
        ("people", "left out", "its urn is reserved or not valid here"): 1,
        ("accounts", "new", None): 1,
        ("groups", "new", None): 1,
        ("groups", "left out", "it was removed in DataHub"): 1,
        ("tokens", "new", None): 6,
        ("tokens", "left out", "its actor is reserved, or its urn is not valid here"): 1,
        ("tokens", "left out", "its actor has no row corpUserKey: DataHub does not accept it"): 1,
        ("tokens", "left out", "its actor is the root actor here, who may do everything: --allow-root"): 1,
        ("tokens", "left out", "it never expires: --allow-no-expiry"): 1,
        ("tokens", "left out", "it has expired"): 1,
        ("tokens", "left out", "its expiresAt is not a time"): 1,
        ("tokens", "left out", "its urn has no token id"): 1,
        ("tokens", "left out", "its row is not a JSON object"): 1,
        ("policies", "new", None): 1,
        ("policies", "note", without): 1,
        ("policies", "left out", "it names no user or group that can be named here; roles do not exist here"): 1,
        ("policies", "left out", "none of its privileges exists here"): 1,
        ("policies", "left out", "it is about the catalogue, not about the platform"): 1,
    }  # fmt: skip
    assert run_import.accepts(anns)
    assert run_import.accepts(accounts)
    assert not any(map(run_import.accepts, (bobs, roots, ghosts, systems, never, expired)))
    found = server.ask(IMPORTED, {"input": {"count": 100}}, actor=ADMIN)["listAccessTokens"]["tokens"]
    listed = {one["id"]: one for one in found}
    names = [listed[token.id]["name"] for token in named]
    assert names == ["Without a name in DataHub", "x" * MAX_NAME, "7"]
    assert listed[accounts.id]["tokenType"] == "SERVICE_ACCOUNT"
    # Ann is in the group that the policy names.
    assert server.create(ANN, token=anns.token, of=ANN)["metadata"]["ownerUrn"] == ANN

    again = run_import(rows)
    changes = ("new", "changed", "suspended", "resumed", "revoked", "removed")
    assert not [key for key in again if key[1] in changes]
    assert again["tokens", "unchanged", None] == 6
    more = run_import(rows, "--allow-no-expiry", "--allow-root")
    assert more["tokens", "new", None] == 2
    assert run_import.accepts(never)
    assert run_import.accepts(roots)
    words = ("doctor", "--data-dir", str(server.data_dir))
    assert "WATCHWORD_DATAHUB_SALT is not set" not in watchword(*words, env=run_import.env).stdout
    without_salt = {name: value for name, value in run_import.env.items() if name not in ENV}
    assert "WATCHWORD_DATAHUB_SALT is not set" in watchword(*words, env=without_salt).stdout
    checked = watchword("db", "check", "--data-dir", str(server.data_dir), env=run_import.env)
    assert checked.returncode == 0, checked.stdout
    told = server.ask("{ listEvents(input: {count: 1000}) { events { action } } }", actor=ADMIN)["listEvents"]["events"]
    assert [event["action"] for event in told].count("token.imported") == 8
    assert [event["action"] for event in told].count("datahub.imported") == 2


def test_later_runs_follow_datahub_without_reviving_anything(run_import: Import) -> None:
    server = run_import.server
    people = person(ANN, corpUserStatus={"status": "ACTIVE"}) + person(CAROL)
    suspended = person(BOB, corpUserStatus={"status": "SUSPENDED"})
    (first, row), (second, other), (bobs, bobs_row), (carols, carols_row) = map(new_token, (ANN, ANN, BOB, CAROL))
    kept = group("urn:li:corpGroup:kept", displayName="Kept")
    gone = group(OPS, displayName="Operations")
    run_import([*people, *suspended, row, other, bobs_row, carols_row, *kept, *gone])
    assert not run_import.accepts(bobs)

    # Resumed there; gone there; revoked here and still there; suspended here and active there.
    assert server.revoke(second.id)
    server.set_status(ANN, "SUSPENDED")
    resumed = person(BOB, corpUserStatus={"status": "ACTIVE"})
    done = run_import([*people, *resumed, row, other, bobs_row, *kept])
    assert done["people", "resumed", None] == 1
    assert done["tokens", "revoked", "gone in DataHub"] == 1
    assert done["tokens", "conflict", "it was revoked here, and stays revoked"] == 1
    assert done["people", "conflict", "active in DataHub, suspended here by a person: stays suspended"] == 1
    assert done["groups", "removed", None] == 1
    assert run_import.accepts(bobs)
    assert not any(map(run_import.accepts, (first, second, carols)))

    # A revoked token stays revoked although its row comes back; a person who is gone takes the token along.
    server.set_status(ANN, "ACTIVE")
    done = run_import([*person(ANN), *person(CAROL), row, other, bobs_row, carols_row, *kept])
    assert done["tokens", "conflict", "it was revoked here, and stays revoked"] == 2
    assert done["tokens", "revoked", "gone in DataHub"] == 1
    assert [run_import.accepts(token) for token in (first, second, bobs, carols)] == [True, False, False, False]

    # An earlier expiry counts, a later one does not.
    soon = first.expires_at - DAY // 2
    done = run_import([*person(ANN), *person(CAROL), token_row(first, expiresAt=soon), carols_row, *kept])
    assert done["tokens", "changed", "it expires earlier in DataHub now: the earlier time counts"] == 1
    done = run_import([*person(ANN), *person(CAROL), row, carols_row, *kept])
    assert done["tokens", "conflict", "it expires later in DataHub now: the time here stays"] == 1
    assert [token["expiresAt"] for token in server.tokens()["tokens"] if token["id"] == first.id] == [soon]


def test_an_empty_partial_or_foreign_source_revokes_nothing(run_import: Import) -> None:
    made = [new_token(ANN) for _ in range(300)]
    rows = [row for _, row in made]
    run_import([*person(ANN), *rows])
    for partial in ([], person(ANN), rows):
        run_import(partial, code=1)
        assert "Nothing was changed" in run_import.refused
    run_import.file.write_text('{"urn": "urn:li:corpuser:ann", "asp')
    words = ("import", "datahub", "--from", str(run_import.file), "--data-dir", str(run_import.server.data_dir))
    assert "line 1" in watchword(*words, env=run_import.env).stderr

    # Three of 300 are one percent.
    (new, new_row), some = new_token(ANN), rows[4:]
    run_import([*person(ANN), *some, new_row], code=1)
    assert "4 of 300 imported live tokens are gone in DataHub; --at-most 1% allows 3" in run_import.refused
    assert run_import.accepts(new)
    assert all(run_import.accepts(token) for token, _ in made[:4])
    # All belong to a person who is gone: as if all were gone.
    run_import([*person(BOB), *rows, new_row], code=1)
    run_import([*person(ANN), *some, new_row], "--at-most", "0%", code=1)
    assert run_import([*person(ANN), *some, new_row], "--at-most", "2%")["tokens", "revoked", "gone in DataHub"] == 4
    assert not any(run_import.accepts(token) for token, _ in made[:4])


def test_an_id_of_our_own_and_what_was_made_here_are_not_touched(run_import: Import) -> None:
    server = run_import.server
    own = server.create(ADMIN)
    server.ask('mutation { createGroup(input: {id: "ops", name: "Ours"}) }', actor=ADMIN)
    rows = [*person(ANN, nativeGroupMembership={"nativeGroups": [OPS]}), *group(OPS, displayName="Theirs")]
    rows += [policy("all", privileges=["MANAGE_POLICIES"], actors={"groups": [OPS]})]
    clash = DataHubToken("", own["metadata"]["id"], ANN, 1, datahub_token(ANN).expires_at)
    done = run_import([*rows, token_row(clash), new_token(ANN)[1]])
    assert done["tokens", "left out", "a token that was created here has its id"] == 1
    assert done["groups", "conflict", "it exists here and did not come from DataHub: it stays as it is"] == 1
    assert (
        done["policies", "left out", "it names no user or group that can be named here; roles do not exist here"] == 1
    )
    assert server.verify(own["accessToken"]).status_code == 204
    # Without its row the token of our own is not revoked.
    run_import([*rows, new_token(ANN)[1], new_token(ANN)[1]])
    assert server.verify(own["accessToken"]).status_code == 204


def test_a_refused_run_leaves_groups_and_policies_as_they_are(run_import: Import) -> None:
    member = person(ANN, nativeGroupMembership={"nativeGroups": [OPS]})
    ops = group(OPS, displayName="Operations")
    granted = policy("ops", privileges=["GENERATE_PERSONAL_ACCESS_TOKENS"], actors={"groups": [OPS]})
    (first, row), (_, second), (_, third) = (new_token(ANN) for _ in range(3))
    rows = [row, second, third]
    run_import([*member, *ops, granted, *rows])

    def may_create() -> bool:
        answer = run_import.server.post(CREATE, {"input": WANTED}, token=first.token).json()
        return "errors" not in answer

    assert may_create()
    # Two of three tokens are gone, and the membership and the policy with them.
    assert run_import([*person(ANN), *ops, row], code=1).keys().isdisjoint(REMOVALS)
    assert "groups and policies stay as they are" in run_import.refused
    assert may_create()
    for partial in ([*person(ANN), *rows, granted], [*member, *ops, *rows]):
        run_import(partial, code=1)
        assert "although some came from it" in run_import.refused
        assert may_create()
    run_import([*person(ANN), *rows, granted], "--tokens-only")
    assert may_create()
    run_import([*person(ANN), *rows], "--at-most", "100%")
    assert not may_create()


def test_rows_that_cannot_be_read_or_are_strange_revive_and_revoke_nothing(run_import: Import) -> None:
    server, suspended = run_import.server, person(BOB, corpUserStatus={"status": "SUSPENDED"})
    (anns, row), (bobs, bobs_row) = new_token(ANN), new_token(BOB)
    nested = (anns.urn.replace(anns.id, f"urn:li:serviceAccessToken:{anns.id}"), *row[1:])
    done = run_import([*person(ANN), *suspended, row, bobs_row, nested])
    assert done["tokens", "new", None] == 2
    assert done["tokens", "left out", "its urn has no token id"] == 1
    active = {"corpUserStatus": {"status": "ACTIVE"}, "status": {"removed": False}}
    for unreadable in ("corpUserStatus", "status"):
        assert ("people", "resumed", None) not in run_import(
            [*person(ANN), *person(BOB, **active | {unreadable: '{"cut o'}), row, bobs_row, nested]
        )
        assert not run_import.accepts(bobs)
    assert run_import.accepts(anns)

    # Somebody here suspends whom an import had suspended: DataHub does not decide any more.
    server.set_status(BOB, "SUSPENDED")
    done = run_import([*person(ANN), *person(BOB, **active), row, bobs_row])
    assert done["people", "conflict", "active in DataHub, suspended here by a person: stays suspended"] == 1
    assert not run_import.accepts(bobs)


def test_texts_with_a_token_are_not_imported(run_import: Import) -> None:
    server, (anns, _) = run_import.server, new_token(ANN)
    text = f"login: {anns.token}"
    run_import([*person(ANN), *group(OPS, displayName=text, description=text), token_row(anns, name=f"{text}\n\u0000")])
    listed = server.ask(IMPORTED, {}, actor=ADMIN)["listAccessTokens"]["tokens"]
    assert [one["id"] for one in listed] == [anns.id]
    found = server.ask(GROUPS, {}, actor=ADMIN)["listGroups"]["groups"]
    assert ("ops", None) in [(one["name"], one["description"]) for one in found]
    assert not [part for part in anns.token.split(".") if part in str((listed, found))]
    assert run_import.accepts(anns)


def test_set_of_datahub_is_reserved_and_a_group_of_the_provider_is_kept(
    make_server: Callable[..., Server], tmp_path: Path
) -> None:
    run_import = Import(make_server("--local-mode", "on", env=ENV), ENV, tmp_path)
    file = tmp_path / "policies.yaml"
    file.write_text("set: datahub\npolicies: []\n")
    applied = watchword("policy", "apply", str(file), "--dry-run", "--as", "admin", "--url", run_import.server.url)
    assert "line 1: set must not be datahub" in applied.stderr

    change_store(run_import.server, f"INSERT INTO group_members VALUES ('{CAROL}', '{OPS}', 1)")
    member = person(ANN, nativeGroupMembership={"nativeGroups": [OPS]})
    done = run_import([*member, *group(OPS, displayName="Theirs"), new_token(ANN)[1]])
    assert done["groups", "conflict", "it exists here and did not come from DataHub: it stays as it is"] == 1
    found = look(run_import.server, "SELECT actor_urn FROM group_members WHERE group_urn = ?", OPS)
    assert found == [(CAROL,)]


def test_a_second_import_waits_for_the_first_and_gives_up(run_import: Import) -> None:
    words = ["import", "datahub", "--from", "-", "--json", "--data-dir", str(run_import.server.data_dir)]
    clean = without_settings()
    command = [sys.executable, "-m", "watchword", *words]
    (anns, row), (bobs, bobs_row) = new_token(ANN), new_token(BOB)
    earlier = write_export(run_import.file, [*person(ANN), row]).read_bytes()
    with subprocess.Popen(command, env=clean | run_import.env, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as first:
        assert first.stdin is not None
        first.stdin.write(earlier)
        first.stdin.flush()
        later = [*person(ANN), *person(BOB), row, bobs_row]
        same = [*person(ANN), row]
        until(lambda: "Another import into this store is running" in refusal(run_import, same), "the lock is held")
        assert "new" in str(run_import(later, "--dry-run"))
        first.stdin.close()
        assert first.wait(60) == 0
    assert run_import(later)["tokens", "new", None] == 1
    assert run_import.accepts(anns)
    assert run_import.accepts(bobs)


def refusal(run_import: Import, rows: list[Row]) -> str:
    write_export(run_import.file, rows)
    flags = ("--from", str(run_import.file), "--data-dir", str(run_import.server.data_dir))
    return watchword("import", "datahub", *flags, env=run_import.env).stderr


def test_follow_brings_new_tokens_reports_what_fails_and_ends_with_ctrl_c(
    make_server: Callable[..., Server], tmp_path: Path
) -> None:
    server = make_server("--local-mode", "on", env=ENV)
    file, (first, row), (second, other) = tmp_path / "export.jsonl", new_token(ANN), new_token(ANN)
    write_export(file, [*person(ANN), row])
    words = ["import", "datahub", "--from", str(file), "--follow", "--every", "1s", "--data-dir", str(server.data_dir)]
    clean = without_settings()
    with (tmp_path / "err").open("wb") as err:
        follower = subprocess.Popen(
            [sys.executable, "-m", "watchword", *words], env=clean | ENV, stdout=err, stderr=err
        )
    try:
        until(lambda: server.verify(first.token).status_code == 204, "the first token comes")
        write_export(tmp_path / "empty", []).replace(file)
        until(lambda: b"Nothing was changed" in (tmp_path / "err").read_bytes(), "the empty source is reported")
        write_export(tmp_path / "next", [*person(ANN), other]).replace(file)
        until(lambda: server.verify(second.token).status_code == 204, "the second token comes")
        until(lambda: server.verify(first.token).status_code == 401, "the first token is revoked")
        follower.send_signal(signal.SIGINT)
        assert follower.wait(60) == 130
        assert b"Traceback" not in (tmp_path / "err").read_bytes()
    finally:
        follower.kill()
        follower.wait()


def test_a_password_on_the_command_line_is_refused_and_none_is_printed(tmp_path: Path, migrated_folder: Path) -> None:
    words = ("import", "datahub", "--data-dir", str(migrated_folder))
    exposed = watchword(*words, "--from", "mysql://datahub:s3cr3t@127.0.0.1:1/datahub")
    assert exposed.returncode == 2
    assert "WATCHWORD_DATAHUB_URL_FILE" in exposed.stderr
    for scheme in ("mysql", "postgresql"):
        secret = {"WATCHWORD_DATAHUB_URL": f"{scheme}://datahub:s3cr3t@127.0.0.1:1/datahub"}
        away = watchword(*words, env=secret)
        assert away.returncode == 1
        assert f"{scheme}://datahub@127.0.0.1:1/datahub cannot be read" in away.stderr
        assert "s3cr3t" not in exposed.stderr + away.stderr + away.stdout
    assert "WATCHWORD_DATAHUB_SALT is not set" in away.stderr
    assert watchword(*words).returncode == 2


@pytest.fixture
def migrated_folder(tmp_path: Path) -> Path:
    folder = tmp_path / "d"
    assert watchword("db", "migrate", "--data-dir", str(folder)).returncode == 0
    return folder


def test_token_of_who_can_escalate_here_comes_only_if_allowed(run_import: Import) -> None:
    """By name, or by a group whose members DataHub decides. Policies that came from DataHub are no reason."""
    server = run_import.server
    server.grant(ANN, privileges=("MANAGE_POLICIES",))
    server.grant(groups=(OPS,), privileges=("MANAGE_SERVICE_ACCOUNTS",))
    rows = [*person(ANN), *person(BOB, nativeGroupMembership={"nativeGroups": [OPS]}), *person(CAROL)]
    rows += [*group(OPS, displayName="Operations")]
    rows += [policy("theirs", privileges=["MANAGE_POLICIES"], actors={"users": [CAROL]})]
    (anns, first), (bobs, second), (carols, third) = (new_token(actor) for actor in (ANN, BOB, CAROL))
    for _ in range(2):
        done = run_import([*rows, first, second, third])
        for name in ("MANAGE_POLICIES", "MANAGE_SERVICE_ACCOUNTS"):
            assert done["tokens", "left out", f"its actor can get any privilege here, by {name}: --allow-root"] == 1
        assert [run_import.accepts(token) for token in (anns, bobs, carols)] == [False, False, True]
    assert run_import([*rows, first, second, third], "--allow-root")["tokens", "new", None] == 2
    assert run_import.accepts(anns)
    assert run_import.accepts(bobs)
