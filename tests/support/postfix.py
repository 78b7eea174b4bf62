"""Debian's postfix for tests: a server of its own, which requires STARTTLS and delivers to mail folders."""

import email
import email.policy
import os
import pwd
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from email.message import EmailMessage
from pathlib import Path

from tests.support.ports import free_port
from tests.support.system import need_program, need_root
from tests.support.waiting import until

MAIN = """
compatibility_level = 3.6
queue_directory = {folder}/queue
data_directory = {folder}/data
maillog_file = {folder}/log
maillog_file_prefixes = {folder}
myhostname = mail.example.org
inet_interfaces = 127.0.0.1
inet_protocols = ipv4
mydestination =
alias_maps =
smtpd_tls_security_level = encrypt
smtpd_tls_cert_file = {chain}
smtpd_tls_key_file = {key}
smtpd_tls_received_header = yes
smtpd_relay_restrictions = reject_unauth_destination
smtpd_recipient_restrictions = check_recipient_access inline:{{ {{ busy@example.org = 450 4.2.1 Mailbox is busy }} }}
virtual_mailbox_domains = example.org
virtual_mailbox_base = {folder}/mail
virtual_mailbox_maps = inline:{{ ann@example.org=ann/ busy@example.org=busy/ }}
virtual_uid_maps = static:{uid}
virtual_gid_maps = static:{gid}
"""
MASTER = """
127.0.0.1:{port} inet n - n - - smtpd
cleanup   unix n - n -    0 cleanup
qmgr      unix n - n 300  1 qmgr
tlsmgr    unix - - n 1000 1 tlsmgr
rewrite   unix - - n -    - trivial-rewrite
bounce    unix - - n -    0 bounce
defer     unix - - n -    0 bounce
trace     unix - - n -    0 bounce
proxymap  unix - - n -    - proxymap
virtual   unix - n n -    - virtual
anvil     unix - - n -    1 anvil
postlog   unix-dgram n - n - 1 postlogd
"""


class Postfix:
    """Has a mailbox for `ann`, defers mail to `busy` (450), and rejects other recipients (550)."""

    def __init__(self, folder: Path, port: int) -> None:
        self._folder = folder
        self.url = f"smtp://localhost:{port}"

    @property
    def log(self) -> str:
        log = self._folder / "log"
        return log.read_text() if log.exists() else ""

    def mails(self, name: str) -> list[EmailMessage]:
        files = (self._folder / "mail" / name / "new").glob("*")
        made = [email.message_from_bytes(file.read_bytes(), policy=email.policy.default) for file in files]
        return [one for one in made if isinstance(one, EmailMessage)]


@contextmanager
def postfix(certificate: tuple[Path, Path]) -> Iterator[Postfix]:
    need_root("postfix starts as root")
    program, port = need_program("postfix", "postfix"), free_port()
    folder = Path(tempfile.mkdtemp(prefix="watchword-postfix-"))
    folder.chmod(0o755)  # its processes have other users
    nobody = pwd.getpwnam("nobody")
    chain, key = certificate
    words = {"folder": folder, "chain": chain, "key": key, "uid": nobody.pw_uid, "gid": nobody.pw_gid}
    (folder / "main.cf").write_text(MAIN.format(**words))
    (folder / "master.cf").write_text(MASTER.format(port=port))
    for name, owner in (("queue", "root"), ("data", "postfix"), ("mail", "nobody")):
        (folder / name).mkdir()
        os.chown(folder / name, pwd.getpwnam(owner).pw_uid, -1)
    try:
        with subprocess.Popen([program, "-c", folder, "start-fg"]) as process:
            running = Postfix(folder, port)
            try:
                until(lambda: process.poll() is not None or "daemon started" in running.log, "postfix listens")
                assert process.poll() is None, running.log
                yield running
            finally:
                process.terminate()
    finally:
        shutil.rmtree(folder)
