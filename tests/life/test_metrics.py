"""`watchword_tokens_revoked_total` counts each revoked token once."""

import re

from tests.life.holding import DELETE_ACCOUNT, LifecycleClient
from tests.support.waiting import until


def revoked(life: LifecycleClient) -> int:
    found = re.search(r"^watchword_tokens_revoked_total (\S+)$", life.server.http.get("/metrics").text, re.MULTILINE)
    assert found is not None
    return int(float(found[1]))


def test_every_kind_of_revocation_is_counted(lives: LifecycleClient) -> None:
    ann = lives.new_actor()
    counted = revoked(lives)

    def now_counted(more: int) -> None:
        nonlocal counted
        counted += more
        # The metric may be a second old.
        until(lambda: revoked(lives) == counted, f"{counted} are counted")

    with_family = lives.create(ann)
    lives.derive(lives.derive(with_family.token).token)
    lives.revoke(with_family)
    now_counted(3)

    minting = lives.create(ann)
    lives.create(ann, token=minting.token)
    lives.revoke(minting, cascade=True)
    now_counted(2)

    given_up = lives.create(ann)
    lives.derive(given_up.token)
    for _ in range(2):  # revoked once
        assert lives.server.http.post("/oauth2/revoke", data={"token": given_up.token}).status_code == 200
    now_counted(2)

    many = [lives.create(ann).id for _ in range(3)]
    lives.revoke_many(ids=many)
    now_counted(3)

    account = lives.new_account()["urn"]
    for _ in range(2):
        lives.create(account, type="SERVICE_ACCOUNT")
    lives.ask(DELETE_ACCOUNT, {"urn": account})
    now_counted(2)

    rotated = lives.create(ann)
    unused = lives.rotate(rotated)
    lives.rotate(rotated)
    assert lives.record(unused)["status"] == "REVOKED"
    now_counted(1)
