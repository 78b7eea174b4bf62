"""In a pod of Kubernetes: another user than root, mounted keys, and volumes whose mode the kubelet sets."""

import os
import shutil
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.in_process import watchword
from tests.support.preloaded import without_settings
from tests.support.server import Server
from tests.support.system import need_program, need_root
from tests.support.waiting import SECONDS

USER, FS_GROUP, OTHER_GROUP = 10_001, 20_001, 20_002
STRANGER = 10_002
GROUPS = f"{FS_GROUP},{OTHER_GROUP}"


@pytest.fixture
def node() -> Iterator[Path]:
    """A folder that every user may enter."""
    need_root("acts as the kubelet and as the user of a pod")
    folder = Path(tempfile.mkdtemp(dir="/tmp"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


def as_pod(groups: str = GROUPS) -> tuple[str, ...]:
    setpriv = need_program("setpriv", "util-linux")
    return (setpriv, f"--reuid={USER}", f"--regid={USER}", f"--groups={groups}")


def pod(node: Path, volume: Path, *flags: str, **env: str) -> Server:
    server = Server(node, *flags, env={"HOME": "/tmp", **env}, prefix=as_pod())
    server.data_dir = volume
    return server


def in_pod(*words: str, groups: str = GROUPS, **env: str) -> subprocess.CompletedProcess[str]:
    command = [*as_pod(groups), sys.executable, "-m", "watchword", *words]
    env = without_settings() | {"HOME": "/tmp"} | env
    return subprocess.run(command, env=env, capture_output=True, text=True, timeout=SECONDS, check=False, cwd="/")


def new_token(volume: Path, **env: str) -> str:
    done = in_pod("token", "create", "--local", "--data-dir", str(volume), **env)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def refusal(volume: Path, *flags: str, **env: str) -> str:
    """What the start says, where it must fail."""
    done = in_pod("serve", "--data-dir", str(volume), *flags, **env)
    assert (done.stdout, done.stderr.count("\n")) == ("", 1), done
    assert done.returncode in {1, 2}
    return done.stderr


def mount(volume: Path, group: int = FS_GROUP) -> None:
    """As the kubelet does for `fsGroup` at each start of a pod: the group owns all, and may read and write it."""
    volume.mkdir(mode=0o700, exist_ok=True)
    for path in (volume, *volume.rglob("*")):
        seen = path.lstat()
        os.chown(path, seen.st_uid, group, follow_symlinks=False)
        more = 0o2770 if stat.S_ISDIR(seen.st_mode) else 0o660
        path.chmod(stat.S_IMODE(seen.st_mode) | more)


def mounted_key(node: Path, mode: int, group: int) -> Path:
    """As a secret is mounted: of root, for a group."""
    key = node / "master.key"
    assert watchword("key", "new-master", str(key)).returncode == 0
    os.chown(key, 0, group)
    key.chmod(mode)
    return key


def test_pod_starts_again_on_a_volume_that_its_group_may_write_to(node: Path) -> None:
    volume = node / "volume"
    mount(volume)
    env = {"WATCHWORD_TRUSTED_GROUP": str(FS_GROUP)}
    with pod(node, volume, **env):
        token = new_token(volume, **env)
    mount(volume)
    assert stat.S_IMODE((volume / "watchword.db").stat().st_mode) == 0o660
    with pod(node, volume, **env) as server:
        assert server.verify(token).status_code == 204
        found = in_pod("doctor", "--data-dir", str(volume), **env).stdout
        assert f"ok   data folder: only its owner can access {volume}" in found
        assert "chmod" not in found
    mount(volume)
    assert f"or set WATCHWORD_TRUSTED_GROUP={FS_GROUP}" in refusal(volume)
    assert "chmod 600" in refusal(volume, WATCHWORD_TRUSTED_GROUP=str(OTHER_GROUP))


def test_mounted_key_of_the_trusted_group_is_accepted(node: Path) -> None:
    volume, key = node / "volume", mounted_key(node, 0o440, FS_GROUP)
    mount(volume)
    assert f"or set WATCHWORD_TRUSTED_GROUP={FS_GROUP}" in refusal(volume, "--master-key-file", str(key))
    flags = ("--master-key-file", str(key), "--trusted-group", str(FS_GROUP))
    with pod(node, volume, *flags):
        assert (volume / "watchword.db").is_file()
    key.chmod(0o444)
    assert "Other users can read the master key" in refusal(volume, *flags)
    key.chmod(0o440)
    os.chown(key, 0, OTHER_GROUP)
    assert "Other users can read the master key" in refusal(volume, *flags)


def test_group_that_the_process_does_not_have_is_rejected(node: Path) -> None:
    said = refusal(node / "volume", WATCHWORD_TRUSTED_GROUP="4711")
    assert "WATCHWORD_TRUSTED_GROUP must be the number of a group of this process, other than 0" in said
    assert f"{USER}, {FS_GROUP}, {OTHER_GROUP}" in said


def test_group_with_other_members_is_rejected(node: Path) -> None:
    """The group database of the machine has www-data as the group of a user of that name."""
    done = in_pod("serve", "--data-dir", str(node / "volume"), "--trusted-group", "33", groups="33")
    assert done.returncode == 2
    assert "--trusted-group must be a group without other members; 33 has www-data" in done.stderr


def test_pod_starts_on_an_empty_folder_that_every_user_may_write_to(node: Path) -> None:
    """An emptyDir belongs to root and has mode 0777."""
    volume = node / "volume"
    volume.mkdir()
    volume.chmod(0o777)
    inner = volume / "watchword"
    with pod(node, volume):
        token = new_token(volume)
        seen = inner.stat()
        assert (seen.st_uid, stat.S_IMODE(seen.st_mode)) == (USER, 0o700)
    assert list(volume.iterdir()) == [inner]
    with pod(node, volume) as server:  # the container is started again in the same pod
        assert server.verify(token).status_code == 204


def test_folder_that_another_user_made_in_an_open_one_is_rejected(node: Path) -> None:
    volume = node / "volume"
    volume.mkdir()
    volume.chmod(0o777)
    inner = volume / "watchword"
    inner.mkdir()
    inner.chmod(0o777)
    os.chown(inner, STRANGER, STRANGER)
    assert "Every user may write to the data folder" in refusal(volume)
    inner.chmod(0o770)
    os.chown(inner, STRANGER, FS_GROUP)
    assert f"{inner} belongs to another user ({STRANGER})" in refusal(volume)
    inner.rename(volume / "other")
    (volume / "real").mkdir()
    os.chown(volume / "real", USER, USER)
    inner.symlink_to("real")
    os.chown(inner, STRANGER, STRANGER, follow_symlinks=False)
    assert f"{inner} belongs to another user ({STRANGER})" in refusal(volume)
