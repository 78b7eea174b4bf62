"""`key new-master` creates a master key in a new file."""

from base64 import b64decode
from pathlib import Path

from tests.cli.in_process import watchword


def test_master_key_is_32_random_bytes_for_its_owner_alone(tmp_path: Path) -> None:
    files = [tmp_path / "one.key", tmp_path / "new" / "two.key"]
    for file in files:
        done = watchword("key", "new-master", str(file))
        assert (done.returncode, done.stderr) == (0, "")
        assert str(file) in done.stdout
        assert file.stat().st_mode & 0o777 == 0o600
        assert file.read_text().strip() not in done.stdout
    keys = [b64decode(file.read_text().strip(), validate=True) for file in files]
    assert [len(key) for key in keys] == [32, 32]
    assert keys[0] != keys[1]
    assert sorted(tmp_path.iterdir()) == [tmp_path / "new", files[0]]


def test_master_key_that_was_made_opens_a_store(tmp_path: Path) -> None:
    file, data = tmp_path / "m.key", tmp_path / "data"
    watchword("key", "new-master", str(file))
    for words in (("db", "migrate"), ("key", "list")):
        done = watchword(*words, "--data-dir", str(data), "--master-key-file", str(file))
        assert (done.returncode, done.stderr) == (0, "")
    assert not (data / "master.key").exists()


def test_file_that_is_there_is_left_as_it_is(tmp_path: Path) -> None:
    file = tmp_path / "m.key"
    file.write_text("precious\n")
    done = watchword("key", "new-master", str(file))
    assert (done.returncode, done.stdout, file.read_text()) == (1, "", "precious\n")
    assert done.stderr == f"watchword: {file} exists already. Stores that it seals need it. Name a new file.\n"
    assert list(tmp_path.iterdir()) == [file]


def test_place_that_cannot_be_written_is_named_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    done = watchword("key", "new-master", str(tmp_path / "file" / "m.key"))
    assert (done.returncode, done.stdout, done.stderr.count("\n")) == (1, "", 1)
    assert str(tmp_path / "file") in done.stderr
