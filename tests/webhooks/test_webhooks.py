"""Webhooks: messages that other libraries verify, to receivers that answer well or badly."""

import re
import sqlite3
import ssl
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import standardwebhooks

from tests.cli.in_process import watchword
from tests.support.clients import run_node
from tests.support.pages import ROOT
from tests.support.receivers import Message, Receiver, bomb, close_midway, endless, hang, status
from tests.support.server import ADMIN, GraphQLRefused, Server
from tests.support.system import need_program
from tests.support.waiting import until

PAGE = ROOT / "docs/how-to/webhooks.md"
CREATE = "mutation ($input: CreateWebhookInput!) { createWebhook(input: $input) { secret webhook { id state } } }"
UPDATE = """mutation ($id: String!, $input: UpdateWebhookInput!) {
  updateWebhook(id: $id, input: $input) { state actions actorUrns } }"""
ROTATE = """mutation ($id: String!, $overlap: String) {
  rotateWebhookSecret(id: $id, overlap: $overlap) { secret webhook { previousSecretUntil } } }"""
TEST = "mutation ($id: String!) { testWebhook(id: $id) { succeeded status error answer } }"
REPLAY = "mutation ($input: ReplayWebhookInput!) { replayWebhook(input: $input) { queued until } }"
APPLY = """mutation ($input: ApplyPoliciesInput!) { applyPolicies(input: $input) {
  unchanged undeclaredWebhooks webhooks { change id before after } } }"""
GET = """query ($id: String!) {
  getWebhook(id: $id) { state stopReason waiting failingSince nextAttemptAt actions } }"""
DELIVERIES = """query ($input: ListWebhookDeliveriesInput!) { listWebhookDeliveries(input: $input) {
  cursor deliveries { id messageId type state payload attempts { at millis succeeded status error answer } } } }"""


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """For localhost, with its key in the same file."""
    file = tmp_path_factory.mktemp("tls") / "localhost.pem"
    wanted = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN=localhost"
    words = [*wanted.split(), "-addext", "subjectAltName=DNS:localhost", "-keyout", str(file), "-out", f"{file}.crt"]
    subprocess.run([need_program("openssl", "openssl"), *words], check=True, capture_output=True)
    with file.open("a") as both:
        both.write(Path(f"{file}.crt").read_text())
    return file


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory, certificate: Path) -> Iterator[Server]:
    allowed = {"WATCHWORD_WEBHOOK_ALLOWED_NETWORKS": "127.0.0.0/8"}
    # Proxies of the environment are ignored: at this port is none.
    proxies = {"HTTP_PROXY": "http://127.0.0.1:9", "ALL_PROXY": "http://127.0.0.1:9"}
    with Server(
        tmp_path_factory.mktemp("webhooks"), env=allowed | proxies | {"SSL_CERT_FILE": f"{certificate}.crt"}
    ) as started:
        yield started


@pytest.fixture
def receiver() -> Iterator[Receiver]:
    with Receiver() as started:
        yield started


def create(server: Server, id_: str, url: str, **fields: Any) -> str:
    made = server.ask(CREATE, {"input": {"id": id_, "name": id_, "url": url, **fields}}, actor=ADMIN)["createWebhook"]
    assert made["webhook"]["id"] == id_
    secret: str = made["secret"]
    return secret


def get(server: Server, id_: str) -> Any:
    return server.ask(GET, {"id": id_}, actor=ADMIN)["getWebhook"]


def deliveries(server: Server, id_: str, **fields: Any) -> list[Any]:
    found: list[Any] = server.ask(DELIVERIES, {"input": {"id": id_, **fields}}, actor=ADMIN)["listWebhookDeliveries"][
        "deliveries"
    ]
    return found


def has_more_than(number: int, messages: list[Message]) -> bool:
    return len(messages) > number


def verified(secret: str, message: Message) -> Any:
    return standardwebhooks.Webhook(secret).verify(message.body, message.headers)


def test_other_libraries_verify_a_message_and_it_holds_no_secret(server: Server, receiver: Receiver) -> None:
    secret = create(server, "verified", receiver.url, actions=["token.*"])
    made = server.create(ADMIN, name="laptop")
    id_ = made["metadata"]["id"]
    message = receiver.first("token.created", id_)
    assert message.path == "/hook?team=a"
    content = verified(secret, message)
    data = content["data"]
    assert data["version"] == 1
    assert (data["action"], content["type"]) == ("token.created", "token.created")
    assert data["actor"]["urn"] == ADMIN
    assert data["target"] == {"id": id_, "name": "laptop", "actorUrn": ADMIN}
    assert data["detail"]["expiresAt"] == made["metadata"]["expiresAt"]
    assert made["accessToken"] not in message.body.decode()
    assert secret not in str(message)
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        standardwebhooks.Webhook(secret).verify(message.body.replace(b"laptop", b"laptip"), message.headers)
    told = {"secret": secret, "body": message.body.decode(), "headers": message.headers}
    (shown,) = re.findall(r"^```python\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    given = f"secret, body, headers = {secret!r}, {message.body!r}, {message.headers!r}"
    printed = subprocess.run([sys.executable, "-c", f"{given}\n{shown}"], capture_output=True, text=True, check=True)
    assert printed.stdout.startswith("token.created {")
    assert run_node("webhook.mjs", told) == {"message": content, "error": "WebhookVerificationError"}
    server.revoke(id_)
    assert verified(secret, receiver.first("token.revoked", id_))["data"]["target"]["name"] == "laptop"
    until(lambda: get(server, "verified")["waiting"] == 0, "all is delivered")
    (newest, *_) = deliveries(server, "verified", state="DELIVERED")
    assert newest["attempts"][0]["status"] == 200
    assert newest["attempts"][0]["answer"] == "ok"


def test_rotation_signs_with_both_secrets_during_the_overlap(server: Server, receiver: Receiver) -> None:
    old = create(server, "rotated", receiver.url, actions=["token.created"])
    both = server.ask(ROTATE, {"id": "rotated", "overlap": "PT1H"}, actor=ADMIN)["rotateWebhookSecret"]
    assert both["webhook"]["previousSecretUntil"] > time.time() * 1_000
    first = receiver.first("token.created", server.create(ADMIN)["metadata"]["id"])
    assert len(first.headers["webhook-signature"].split()) == 2
    verified(old, first)
    verified(both["secret"], first)
    new = server.ask(ROTATE, {"id": "rotated", "overlap": "PT0S"}, actor=ADMIN)["rotateWebhookSecret"]["secret"]
    second = receiver.first("token.created", server.create(ADMIN)["metadata"]["id"])
    verified(new, second)
    with pytest.raises(standardwebhooks.WebhookVerificationError):
        verified(both["secret"], second)


def test_test_message_and_replays_reach_the_receiver(server: Server, receiver: Receiver) -> None:
    secret = create(server, "replayed", receiver.url, actions=["token.created"])
    tried = server.ask(TEST, {"id": "replayed"}, actor=ADMIN)["testWebhook"]
    assert tried == {"succeeded": True, "status": 200, "error": None, "answer": "ok"}
    assert verified(secret, receiver.messages[0])["type"] == "webhook.test"
    since = server.create(ADMIN)["metadata"]["createdAt"]
    message = receiver.first("token.created")
    delivered = partial(until, lambda: get(server, "replayed")["waiting"] == 0, "it is delivered")
    delivered()
    (one,) = deliveries(server, "replayed")
    for again in ({"deliveryId": one["id"]}, {"since": since}):
        seen = len(receiver.messages)
        done = server.ask(REPLAY, {"input": {"id": "replayed", **again}}, actor=ADMIN)["replayWebhook"]
        assert done == {"queued": 1, "until": None}
        receiver.until(partial(has_more_than, seen), "it comes again")
        (repeated,) = receiver.messages[seen:]
        assert (repeated.id, repeated.body) == (message.id, message.body)
        delivered()  # what still waits is not queued again


def test_bad_receivers_are_tried_again_and_cost_no_memory(server: Server) -> None:
    bad = {
        "error": status(500, b"x" * 5_000),
        "gone": status(410),
        "redirect": status(301, location="http://127.0.0.1:9/elsewhere"),
        "endless": endless,
        "bomb": bomb,
        "closes": close_midway,
        "hangs": hang,
    }
    receivers = {name: Receiver(answer) for name, answer in bad.items()}
    for name, one in receivers.items():
        one.__enter__()
        create(server, name, one.url, actions=["policy.created"])
    server.grant("urn:li:corpuser:whoever")
    with Receiver() as well:
        create(server, "well", well.url, actions=["policy.created"])
        server.grant("urn:li:corpuser:whoever-else")
        well.first("policy.created")  # while another receiver hangs

    def first_attempt(name: str) -> Any:
        until(lambda: any(one["attempts"] for one in deliveries(server, name)), f"{name} is tried", 60)
        return deliveries(server, name)[-1]["attempts"][0]

    with ThreadPoolExecutor(len(bad)) as pool:
        attempts = dict(zip(bad, pool.map(first_attempt, bad), strict=True))
    for name in ("endless", "bomb"):
        assert attempts[name]["succeeded"]
        assert len(attempts[name]["answer"].encode()) <= 3 * 1_024
    assert (attempts["error"]["status"], attempts["error"]["answer"]) == (500, "x" * 1_024)
    assert attempts["redirect"]["status"] == 301
    assert "10 s" in attempts["hangs"]["error"]
    assert attempts["closes"]["error"]
    for name in ("error", "redirect", "closes", "hangs"):
        found = get(server, name)
        assert (found["state"], found["waiting"], not found["failingSince"]) == ("ENABLED", 2, False)
    assert get(server, "gone")["stopReason"] == "gone"
    assert get(server, "gone")["state"] == "DISABLED"
    for one in receivers.values():
        one.__exit__(None, None, None)
    for name in ("error", "redirect", "closes", "hangs"):
        server.ask("mutation ($id: String!) { deleteWebhook(id: $id) }", {"id": name}, actor=ADMIN)


def test_broken_webhook_fails_and_the_others_go_on(server: Server, receiver: Receiver) -> None:
    create(server, "broken", receiver.url, actions=["group.created"])
    with closing(sqlite3.connect(server.data_dir / "watchword.db")) as store, store:
        store.execute("UPDATE webhooks SET sealed_secret = x'00' WHERE id = 'broken'")
    create(server, "whole", receiver.url, actions=["group.created"])
    group = 'mutation { createGroup(input: {id: "beside-a-broken-one", name: "x"}) }'
    server.ask(group, {}, actor=ADMIN)
    receiver.first("group.created")
    until(lambda: get(server, "broken")["nextAttemptAt"], "the failure is recorded")
    (one,) = deliveries(server, "broken")
    assert {attempt["error"] for attempt in one["attempts"]} == {"internal error"}
    assert "webhook failed" in server.err.read_text()
    assert "background task failed" not in server.err.read_text()
    server.ask("mutation ($id: String!) { deleteWebhook(id: $id) }", {"id": "broken"}, actor=ADMIN)


def test_tls_without_data_is_bounded_too(server: Server, certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    context.num_tickets = 2_000  # which a client reads before the answer: half a megabyte
    with Receiver(tls=context) as receiver:
        create(server, "tickets", f"https://localhost:{receiver.port}/hook", enabled=False)
        tried = server.ask(TEST, {"id": "tickets"}, actor=ADMIN)["testWebhook"]
    assert tried["error"] == "The answer has more than 65,536 bytes."


def test_tls_verifies_the_name_of_the_receiver(server: Server, certificate: Path) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate)
    with Receiver(tls=context) as receiver:
        answers = {}
        for id_, host in (("named", "localhost"), ("unnamed", "127.0.0.1")):
            create(server, id_, f"https://{host}:{receiver.port}/", actions=["token.revoked"])
            answers[id_] = server.ask(TEST, {"id": id_}, actor=ADMIN)["testWebhook"]
        assert answers["named"]["succeeded"]
        assert "certificate verify failed" in answers["unnamed"]["error"]
        assert [message.headers["host"] for message in receiver.messages] == [f"localhost:{receiver.port}"]


def test_metrics_count_deliveries(server: Server, receiver: Receiver) -> None:
    create(server, "counted", receiver.url, actions=["webhook.created"])
    receiver.first("webhook.created")
    until(lambda: server.samples().get('watchword_deliveries_total{result="delivered"}', 0) > 0, "it is counted")


def test_webhooks_need_both_privileges_before_anything_is_said(server: Server, actor: str) -> None:
    for privileges, missing in (
        (("VIEW_AUDIT_LOG",), "MANAGE_WEBHOOKS"),
        (("MANAGE_WEBHOOKS",), "VIEW_AUDIT_LOG"),
    ):
        policy = server.grant(actor, privileges=privileges)
        for query, variables in (
            (GET, {"id": "no such webhook!"}),
            (CREATE, {"input": {"name": "x", "url": "http://127.0.0.1"}}),
            (DELIVERIES, {"input": {"id": "verified"}}),
            (REPLAY, {"input": {"id": "verified"}}),
            (TEST, {"id": "verified"}),
        ):
            with pytest.raises(GraphQLRefused) as refused:
                server.ask(query, variables, actor=actor)
            assert refused.value.errors[0]["extensions"]["privilege"] == missing
        server.withdraw(policy)


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"id": "A B"}, "id"),
        ({"name": ""}, "name"),
        ({"url": "ftp://example.com/"}, "url"),
        ({"url": "https://example.com:70000/"}, "url"),
        ({"actions": ["token.creatd"]}, "actions"),
        ({"actorUrns": ["ann"]}, "actorUrns"),
        ({"groupUrns": ["urn:li:corpuser:ann"]}, "groupUrns"),
    ],
)
def test_bad_input_names_the_field(server: Server, fields: dict[str, Any], named: str) -> None:
    wanted = {"id": "bad", "name": "bad", "url": "https://127.0.0.1/", **fields}
    with pytest.raises(GraphQLRefused) as refused:
        server.ask(CREATE, {"input": wanted}, actor=ADMIN)
    assert refused.value.errors[0]["extensions"]["field"] == named


def test_policy_set_declares_webhooks(server: Server, receiver: Receiver, actor: str) -> None:
    server.grant(actor, privileges=("MANAGE_POLICIES", "MANAGE_WEBHOOKS"))
    declared = {"id": "declared", "name": "Declared", "url": receiver.url, "actions": ["token.created"]}
    wanted = {"set": "hooks", "webhooks": [declared]}
    with pytest.raises(GraphQLRefused) as refused:
        server.ask(APPLY, {"input": wanted}, actor=actor)
    assert refused.value.errors[0]["extensions"]["privilege"] == "VIEW_AUDIT_LOG"
    made = server.ask(APPLY, {"input": wanted}, actor=ADMIN)["applyPolicies"]["webhooks"]
    assert made == [
        {"change": "CREATE", "id": "declared", "before": None, "after": declared | {"enabled": True, "set": "hooks"}}
    ]
    secret = server.ask(ROTATE, {"id": "declared", "overlap": "PT0S"}, actor=ADMIN)["rotateWebhookSecret"]["secret"]
    verified(secret, receiver.first("token.created", server.create(ADMIN)["metadata"]["id"]))
    assert server.ask(APPLY, {"input": wanted}, actor=ADMIN)["applyPolicies"]["unchanged"] == 1
    with pytest.raises(GraphQLRefused) as refused:
        server.ask(UPDATE, {"id": "declared", "input": {"name": "Other"}}, actor=ADMIN)
    assert refused.value.reason == "policy_declared_elsewhere"
    off = wanted | {"webhooks": [declared | {"enabled": False}]}
    (change,) = server.ask(APPLY, {"input": off}, actor=ADMIN)["applyPolicies"]["webhooks"]
    assert [change[word]["enabled"] for word in ("before", "after")] == [True, False]
    assert get(server, "declared")["state"] == "DISABLED"
    left = server.ask(APPLY, {"input": {"set": "hooks"}}, actor=ADMIN)["applyPolicies"]
    assert left["undeclaredWebhooks"] == ["declared"]
    (gone,) = server.ask(APPLY, {"input": {"set": "hooks", "prune": True}}, actor=ADMIN)["applyPolicies"]["webhooks"]
    assert gone["change"] == "DELETE"


def test_policy_file_is_applied_at_start_and_exported(
    make_server: Callable[..., Server], tmp_path: Path, receiver: Receiver
) -> None:
    file = tmp_path / "policies.yaml"
    file.write_text(f"webhooks:\n  - {{id: filed, name: Filed, url: '{receiver.url}', actions: [token.created]}}\n")
    file.chmod(0o600)
    env = {"WATCHWORD_WEBHOOK_ALLOWED_NETWORKS": "127.0.0.0/8", "WATCHWORD_POLICY_FILE": str(file)}
    server = make_server(env=env)
    assert "policy file" in server.out.read_text()
    server.create(ADMIN)
    receiver.first("token.created")
    how = ("--url", server.url, "--as", ADMIN)
    assert "id: filed" in watchword("policy", "export", *how).stdout
    same = watchword("policy", "apply", str(file), "--dry-run", *how)
    assert (same.returncode, same.stdout) == (0, "0 to create, 0 to update, 0 to remove, 1 unchanged.\n")


def test_update_changes_only_what_is_given(server: Server, receiver: Receiver) -> None:
    create(server, "updated", receiver.url, actions=["token.created"], actorUrns=[ADMIN])
    asked = {"id": "updated", "input": {"actions": [], "enabled": False}}
    assert server.ask(UPDATE, asked, actor=ADMIN)["updateWebhook"] == {
        "state": "DISABLED",
        "actions": [],
        "actorUrns": [ADMIN],
    }
