"""Parsing the database URL. Errors never repeat any part of it."""

from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.support.server import watchword
from watchword import setting_values as values
from watchword.database.urls import PostgresUrl
from watchword.settings import SettingsError, load

SECRET = "hunter2-is-no-password"
GOOD = f"postgresql://ww:{SECRET}@db1.example:5432,[::1]:5433/tokens?sslmode=require&target_session_attrs=read-write"
BAD = [
    ("", "a host, or with ?host=/folder"),
    (f"ww:{SECRET}@{'x' * 64}.example/tokens", "hosts are host:port"),
    (f"ww:{SECRET}@db..example/tokens", "hosts are host:port"),
    (f"ww:{SECRET}@a b/tokens", "hosts are host:port"),
    (f"ww:{SECRET}@[::g]/tokens", "postgresql://user:password@host:port/database"),
    (f"ww:{SECRET}@db/tokens?sslrootcert=%00", "postgresql://user:password@host:port/database"),
    (f"ww:{SECRET}@db", "user and a database"),
    (f"ww:{SECRET}@db/", "user and a database"),
    (f":{SECRET}@db/tokens", "user and a database"),
    (f"ww:{SECRET}@db/tokens/more", "user and a database"),
    (f"ww:{SECRET}@db/tokens#part", "user and a database"),
    (f"ww:{SECRET}@/tokens", "a host, or with ?host=/folder"),
    (f"ww:{SECRET}@db:0/tokens", "hosts are host:port"),
    (f"ww:{SECRET}@db,,db2/tokens", "hosts are host:port"),
    (f"ww:{SECRET}@db:many/tokens", "postgresql://user:password@host:port/database"),
    (f"ww:{SECRET}@db:99999/tokens", "postgresql://user:password@host:port/database"),
    (f"ww:{SECRET}@[::1/tokens", "postgresql://user:password@host:port/database"),
    (f"ww:{SECRET}%FF@db/tokens", "postgresql://user:password@host:port/database"),
    (f"ww:{SECRET}@db/tokens?sslmode=on", "sslmode is one of disable, prefer, require, verify-ca, verify-full"),
    (f"ww:{SECRET}@db/tokens?sslmode", "postgresql://user:password@host:port/database"),
    (f"ww:{SECRET}@db/tokens?password={SECRET}", "parameters are among sslmode"),
    (f"ww:{SECRET}@db/tokens?target_session_attrs=standby", "target_session_attrs is read-write"),
]


@pytest.mark.parametrize(("rest", "sentence"), BAD)
def test_invalid_database_url_is_rejected_without_echoing_it(rest: str, sentence: str) -> None:
    with pytest.raises(SettingsError) as caught:
        load({}, {"WATCHWORD_DATABASE_URL": f"postgresql://{rest}"})
    said = str(caught.value)
    assert said.startswith("WATCHWORD_DATABASE_URL must be ")
    assert sentence in said
    assert SECRET not in said


def test_invalid_database_url_prevents_start() -> None:
    for words in ((), ("--debug",)):
        done = watchword(*words, "serve", env={"WATCHWORD_DATABASE_URL": f"mysql://ww:{SECRET}@db/tokens"})
        assert (done.returncode, done.stdout) == (1, "")
        assert "WATCHWORD_DATABASE_URL must be postgresql://user:password@host:port/database" in done.stderr
        assert SECRET not in done.stderr


@given(data=st.data())
def test_mutated_database_url_is_parsed_or_rejected(data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(GOOD)))
    end = data.draw(st.integers(begin, min(begin + 12, len(GOOD))))
    put = data.draw(st.text(alphabet=st.sampled_from("/:@?&=%#[],\\ \0\n\t\x7fé٣aZ0-_.") | st.characters(), max_size=6))
    check(GOOD[:begin] + put + GOOD[end:])


@given(st.text(max_size=60))
@example("\0")
@example("//[")
@example("a@[1:2%]/b")
@example("a@b/c?port=٣")
@example("a@b/c?port=" + "9" * 5000)
@example("a@b:" + "9" * 5000 + "/c")
@example("a@b/c?host=/x&host=y")
@example("a@\ud800/b")
@example("a@" + "x" * 64 + "/b")
@example("a@é" + "x" * 62 + "/b")
@example("a@b/c?host=/%00")
def test_any_text_as_database_url_is_parsed_or_rejected(text: str) -> None:
    check(f"postgresql://{text}")


def error_of(text: str) -> str:
    """The error message; empty if the URL is valid."""
    try:
        values.database(text)
    except ValueError as error:
        return str(error)
    return ""


# Each message is the same for every URL, so it cannot contain parts of one.
SENTENCES = {error_of(f"postgresql://{rest}") for rest, _ in BAD}


def check(text: str) -> None:
    if said := error_of(text):
        assert said in SENTENCES
        return
    place = values.database(text)
    if isinstance(place, PostgresUrl):
        assert place.hosts
        assert all(0 < port < 65_536 for _, port in place.hosts)
        # The resolver encodes host names as IDNA.
        assert all(host.startswith("/") or host.encode("idna") for host, _ in place.hosts)
        assert place.user
        assert place.database
        assert place.password is None or repr(place.password.reveal()) not in repr(place)


@given(
    user=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), min_size=1, max_size=12),
    password=st.text(st.characters(exclude_categories=["Cs"]), max_size=12),
    base=st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0/"), min_size=1, max_size=12),
)
def test_quoted_names_and_passwords_are_decoded(user: str, password: str, base: str) -> None:
    text = f"postgresql://{quote(user, safe='')}:{quote(password, safe='')}@h:1,[::1]/{quote(base, safe='')}"
    place = values.database(text)
    assert isinstance(place, PostgresUrl)
    assert (place.user, place.database, place.hosts) == (user, base, (("h", 1), ("::1", 5432)))
    assert place.password is not None
    assert place.password.reveal() == password
