import copy
import json
import logging
import pickle
import traceback
from dataclasses import dataclass

import orjson
import pytest

from watchword.basics.secret import Secret

WORD = "hunter2-hunter2"


@dataclass(frozen=True)
class Holder:
    secret: Secret[str]


SECRETS = [Secret(WORD), Secret(WORD.encode())]


@pytest.mark.parametrize("secret", SECRETS)
def test_printed_secret_is_hidden(secret: Secret[str] | Secret[bytes]) -> None:
    forms = [repr(secret), str(secret), f"{secret}", f"{secret!r}", f"{secret:>40}", "{}".format(secret), "%s" % secret]  # noqa: UP031, UP032
    forms += [repr([secret]), repr({"x": secret}), ascii(secret)]
    assert all(WORD not in form and "Secret" in form for form in forms)


def test_secret_is_hidden_in_the_repr_of_its_owner() -> None:
    assert WORD not in repr(Holder(Secret(WORD)))


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_secret_cannot_be_pickled(protocol: int) -> None:
    with pytest.raises(TypeError, match="not pickled"):
        pickle.dumps(Secret(WORD), protocol)


def test_secret_cannot_be_copied() -> None:
    with pytest.raises(TypeError):
        copy.copy(Secret(WORD))
    with pytest.raises(TypeError):
        copy.deepcopy(Holder(Secret(WORD)))


def test_secret_cannot_be_serialized_as_json() -> None:
    with pytest.raises(TypeError):
        json.dumps(Secret(WORD))
    with pytest.raises(TypeError):
        orjson.dumps(Secret(WORD))


def test_secret_is_hidden_in_logs_and_tracebacks(caplog: pytest.LogCaptureFixture) -> None:
    logging.getLogger("test").warning("holding %s and %r", Secret(WORD), Secret(WORD))
    error = ValueError(Secret(WORD), Holder(Secret(WORD)))
    shown = "".join(traceback.format_exception(error))
    assert WORD not in caplog.text
    assert "Secret" in shown
    assert WORD not in shown


@pytest.mark.parametrize("secret", SECRETS)
def test_reveal_returns_the_secret(secret: Secret[str] | Secret[bytes]) -> None:
    assert secret.reveal() in (WORD, WORD.encode())
    assert not hasattr(secret, "__dict__")
