"""Three real PostgreSQL servers under Patroni, with etcd and HAProxy, on the files of docs/how-to/high-availability.md.

Addresses, folders, the pace of failover and `fsync` differ from the page, nothing else. No process outlives the run
(`supervisor.py`), and no service of the system is used.
"""

import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Self

import httpx
import psutil
import psycopg
import yaml

from tests.support.networks import Network
from tests.support.pages import ROOT
from tests.support.ports import free_port
from tests.support.postgres import DEBIAN, Address, _run, programs, runs_as
from tests.support.system import need_program
from tests.support.waiting import SECONDS, until, until_gone

PAGE = ROOT / "docs/how-to/high-availability.md"
SUPERVISOR = ROOT / "tests/support/supervisor.py"
NODES = ("node1", "node2", "node3")
ADDRESSES = ("10.0.0.11", "10.0.0.12", "10.0.0.13")
SUBNET, PROXY = "10.0.0.0/24", "127.0.0.1:5000"
"""What the page says."""
PACE = {"ttl": 5, "loop_wait": 1, "retry_timeout": 2}
"""Seconds. Patroni asks for ttl >= loop_wait + 2 * retry_timeout."""
QUICK = {"fsync": "off", "dynamic_shared_memory_type": "mmap", "log_line_prefix": "%m [%p] %a "}
"""Memory in the data folder is removed with it, also after a `kill -9`."""
USER, PASSWORD, DATABASE = "watchword", "change-me", "watchword"
REST = 1.0
"""Seconds for an answer of an agent that is not stopped."""


def page_block(kind: str, word: str = "") -> str:
    """The one block of this kind that has this word."""
    found = re.findall(rf"^```{kind}\n(.*?)^```$", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    (code,) = [block for block in found if word in block]
    return str(code)


class Node(Address):
    """One PostgreSQL server with its agent."""

    def __init__(self, cluster: "PatroniCluster", name: str) -> None:
        super().__init__(DEBIAN, 5432, DATABASE)
        self.name = name
        self.address = cluster.network.address(name)
        self.log = cluster.logs / f"{name}.log"
        self._cluster = cluster
        self._config = cluster.folder / f"{name}.yml"
        self._supervisors: list[subprocess.Popen[bytes]] = []

    def __repr__(self) -> str:
        return self.name

    @property
    def host(self) -> str:
        return f"{self.address}:{self.port}"

    def url(self, *, user: str = USER, password: str | None = PASSWORD, database: str = "", query: str = "") -> str:
        return super().url(user=user, password=password, database=database, query=query)

    def admin(self, query: str, *, seconds: int = int(SECONDS), database: str = "postgres") -> list[Any]:
        """The rows of a statement of the superuser."""
        login = yaml.safe_load(self._config.read_text())["postgresql"]["authentication"]["superuser"]
        url = self.url(user=login["username"], password=login["password"], database=database)
        with psycopg.connect(url, autocommit=True, connect_timeout=seconds) as connection:
            answer = connection.execute(query.encode())
            return answer.fetchall() if answer.description else []

    def rest(self, path: str) -> httpx.Response | None:
        """What the agent answers; None if it does not."""
        with suppress(httpx.HTTPError):
            return self._cluster.http.get(f"http://{self.address}:8008{path}")
        return None

    @property
    def is_primary(self) -> bool:
        """Whether the agent holds the leader key and PostgreSQL runs as primary."""
        answer = self.rest("/primary")
        return answer is not None and answer.status_code == 200

    def configure(self, text: str) -> None:
        folder = self._cluster.folder / self.name
        folder.mkdir()
        wanted = yaml.safe_load(text)
        wanted["bootstrap"]["dcs"] |= PACE
        server = wanted["postgresql"]
        server |= {"bin_dir": str(programs(DEBIAN)), "data_dir": f"{folder}/data", "pgpass": f"{folder}/pgpass"}
        server["parameters"] |= QUICK | {"unix_socket_directories": str(folder)}
        self._config.write_text(yaml.safe_dump(wanted))

    def start(self) -> Self:
        """Start the agent, which starts PostgreSQL unless it runs."""
        command = [need_program("patroni", "patroni"), str(self._config)]
        self._supervisors.append(self._cluster.supervise(self.log, self._cluster.network.enter(self.name), command))
        return self

    def agent(self) -> psutil.Process:
        supervisor = psutil.Process(self._supervisors[-1].pid)
        (found,) = [child for child in supervisor.children() if str(self._config) in child.cmdline()]
        return found

    def processes(self) -> list[psutil.Process]:
        """The agent, PostgreSQL and everything that they started."""
        found: list[psutil.Process] = []
        for supervisor in self._supervisors:
            with suppress(psutil.NoSuchProcess):
                found += psutil.Process(supervisor.pid).children(recursive=True)
        return [process for process in found if process.is_running() and process.status() != psutil.STATUS_ZOMBIE]

    def stop_agent(self) -> None:
        """`SIGSTOP` for the agent alone: PostgreSQL and its connections stay."""
        self.agent().suspend()

    def resume_agent(self) -> None:
        self.agent().resume()

    def kill_agent(self) -> None:
        """`kill -9` for the agent alone."""
        agent = self.agent()
        agent.kill()
        until_gone([agent])

    def freeze(self) -> None:
        """`SIGSTOP` for PostgreSQL and the agent."""
        stopped: set[int] = set()
        while new := [process for process in self.processes() if process.pid not in stopped]:
            for process in new:
                with suppress(psutil.NoSuchProcess):
                    process.suspend()
                stopped.add(process.pid)

    def thaw(self) -> None:
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                process.resume()

    def kill(self) -> None:
        """`kill -9` for PostgreSQL and the agent, all at once."""
        self.freeze()  # so that no process starts another meanwhile
        killed = self.processes()
        for process in killed:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        until_gone(killed)
        for supervisor in self._supervisors:
            supervisor.wait(SECONDS)
        self._supervisors.clear()

    def end(self) -> None:
        for supervisor in self._supervisors:
            supervisor.send_signal(signal.SIGTERM)
        for supervisor in self._supervisors:
            supervisor.wait(SECONDS)
        self._supervisors.clear()

    def cut(self) -> None:
        """Cut the network to the other nodes and their etcd. Clients still reach this node."""
        self._cluster.network.cut(self.name)

    def repair(self) -> None:
        self._cluster.network.repair(self.name)


class PatroniCluster(Address):
    """Three nodes. As an address it is the list of all hosts."""

    def __init__(self, logs: Path) -> None:
        need_program("etcd", "etcd-server")
        need_program("patroni", "patroni")
        need_program("haproxy", "haproxy")
        super().__init__(DEBIAN, 5432, DATABASE)
        self.logs = logs
        self.folder = Path(tempfile.mkdtemp(prefix="watchword-patroni-", dir="/dev/shm"))  # etcd flushes
        if runs_as():
            shutil.chown(self.folder, runs_as())
        self._others: list[subprocess.Popen[bytes]] = []
        self.network = Network(NODES, self._hold)
        self.http = httpx.Client(timeout=REST, verify=False)  # to load authorities takes long
        self.nodes = [Node(self, name) for name in NODES]
        self.proxy = Address(DEBIAN, free_port(), DATABASE)

    @property
    def host(self) -> str:
        """As in the page's URL."""
        (hosts,) = re.findall(r"@([\d.:,]+)/", page_block("properties"))
        return self._everywhere(hosts)

    def url(self, *, user: str = USER, password: str | None = PASSWORD, database: str = "", query: str = "") -> str:
        return super().url(user=user, password=password, database=database, query=query)

    @property
    def proxy_url(self) -> str:
        """Through HAProxy."""
        return self.proxy.url(user=USER, password=PASSWORD)

    def connect(self, schema: str | None = None, **how: Any) -> psycopg.Connection:
        return super().connect(schema, target_session_attrs="read-write", **how)

    def start(self) -> Self:
        self._start_etcd()
        for node in self.nodes:
            node.configure(self._of(node.name, page_block("yaml")))
        self._chown()
        self.nodes[0].start()
        until(lambda: self.nodes[0].is_primary, f"{self.nodes[0].log} says that it is the primary")
        for node in self.nodes[1:]:
            node.start()
        self.until_settled()
        for statement in page_block("sql").splitlines():
            self.nodes[0].admin(statement)
        listed = self.control("list")
        assert ("Leader" in listed, "Sync Standby" in listed) == (True, True), listed
        self._start_haproxy()
        return self

    def remove(self) -> None:
        for node in self.nodes:
            node.end()
        for supervisor in reversed(self._others):
            supervisor.send_signal(signal.SIGTERM)
            supervisor.wait(SECONDS)
        self.http.close()
        shutil.rmtree(self.folder)

    # What it is now.

    def members(self) -> dict[str, dict[str, Any]]:
        """What Patroni says of each node, from any agent that answers."""
        for node in self.nodes:
            answer = node.rest("/cluster")
            if answer is not None and answer.status_code == 200:
                return {member["name"]: member for member in answer.json()["members"]}
        return {}

    def leader(self) -> Node:
        """The primary by the agents; waits until there is one."""
        return self.until_promoted()

    def sync_standby(self) -> Node | None:
        roles = {name: member["role"] for name, member in self.members().items()}
        return next((node for node in self.nodes if roles.get(node.name) == "sync_standby"), None)

    def is_settled(self) -> bool:
        """One primary, one synchronous standby, one other standby, all running, and PostgreSQL waits for that one."""
        members = self.members()
        roles = sorted(member["role"] for member in members.values())
        if roles != ["leader", "replica", "sync_standby"] or not all("timeline" in m for m in members.values()):
            return False
        if {m["state"] for m in members.values()} - {"running", "streaming"}:
            return False
        primary = next(node for node in self.nodes if members[node.name]["role"] == "leader")
        standby = next(name for name, member in members.items() if member["role"] == "sync_standby")
        with suppress(psycopg.OperationalError):
            query = "SELECT application_name, sync_state FROM pg_stat_replication WHERE state = 'streaming'"
            states = dict(primary.admin(query, seconds=2))
            return states == {
                **{node.name: "async" for node in self.nodes if node is not primary},
                standby: "sync",
            }
        return False

    def until_settled(self) -> None:
        until(self.is_settled, f"the cluster is complete: {self.members()}, logs in {self.logs}")

    def until_promoted(self, *others: Node) -> Node:
        """Wait until one node that is not among these is the primary; return it."""
        left = [node for node in self.nodes if node not in others]
        found: list[Node] = []

        def is_promoted() -> bool:
            found[:] = [node for node in left if node.is_primary]
            return bool(found)

        until(is_promoted, f"one of {left} is the primary, logs in {self.logs}")
        return found[0]

    def switchover(self) -> Node:
        """To the synchronous standby; returns it."""
        leader, standby = self.leader(), self.sync_standby()
        assert standby is not None
        told = self.control("switchover", node1=leader.name, node2=standby.name)
        assert "Successfully switched over" in told, told
        return self.until_promoted(leader)

    def control(self, word: str, **names: str) -> str:
        """Run the page's command with this word, with these names for its own; return the output."""
        command = page_block("bash", f" {word}").replace("/etc/patroni/config.yml", f"{self.folder}/{NODES[0]}.yml")
        command = re.sub(r"\bnode\d\b(?!\.)", lambda found: names[found[0]], command)
        done = subprocess.run(["bash", "-euc", command], capture_output=True, text=True, check=False)
        assert done.returncode == 0, f"{command}{done.stdout}{done.stderr}"
        return done.stdout

    # How its parts are started.

    def supervise(
        self, log: Path, prefix: Sequence[str], command: Sequence[str], *, user: str | None = None, **env: str
    ) -> subprocess.Popen[bytes]:
        """Start a command that ends with the run."""
        words = [sys.executable, "-I", "-S", str(SUPERVISOR), str(_run), str(self.folder)]
        clean = {k: v for k, v in os.environ.items() if not k.startswith(("PG", "WATCHWORD_", "ETCD", "PATRONI"))}
        with log.open("ab") as out:
            return subprocess.Popen(
                [*prefix, *words, runs_as() if user is None else user, *command],
                stdin=subprocess.DEVNULL, stdout=out, stderr=out, env=clean | env, start_new_session=True,
            )  # fmt: skip

    def _hold(self, prefix: Sequence[str]) -> int:
        """A process that does nothing in namespaces of its own."""
        ready = self.folder / f"ready{len(self._others)}"
        command = ["sh", "-c", f"touch {ready}; exec sleep infinity"]
        self._others.append(self.supervise(self.logs / "network.log", prefix, command, user=""))
        until(ready.exists, f"{ready} is there")
        return self._others[-1].pid

    def _of(self, name: str, text: str) -> str:
        """A file of the page, as it is on this node."""
        lines = text.replace(SUBNET, self.network.subnet).splitlines()
        for number, line in enumerate(lines):
            is_own = sum(line.count(address) for address in ADDRESSES) == 1
            own = line.replace(ADDRESSES[0], self.network.address(name))
            lines[number] = own if is_own else self._everywhere(line)
        return re.sub(r"^(name: |ETCD_NAME=\")node1", rf"\1{name}", "\n".join(lines), flags=re.MULTILINE)

    def _everywhere(self, text: str) -> str:
        """The addresses of the page replaced by ours."""
        for address, name in zip(ADDRESSES, NODES, strict=True):
            text = text.replace(address, self.network.address(name))
        return text

    def _start_etcd(self) -> None:
        for name in NODES:
            env = dict(re.findall(r"^(\w+)=\"(.*)\"$", self._of(name, page_block("ini")), re.MULTILINE))
            env["ETCD_DATA_DIR"] = f"{self.folder}/etcd-{name}"
            log, prefix = self.logs / f"etcd-{name}.log", self.network.enter(name)
            self._others.append(self.supervise(log, prefix, [need_program("etcd", "etcd-server")], **env))
        for name in NODES:
            until(lambda name=name: self._is_healthy(name), f"etcd on {name} is healthy")  # type: ignore[misc]

    def _is_healthy(self, name: str) -> bool:
        with suppress(httpx.HTTPError):
            answer = self.http.get(f"http://{self.network.address(name)}:2379/health")
            return answer.status_code == 200 and answer.json()["health"] == "true"
        return False

    def _start_haproxy(self) -> None:
        text = page_block("haproxy").replace(PROXY, f"127.0.0.1:{self.proxy.port}")
        config = self.folder / "haproxy.cfg"
        config.write_text(self._everywhere(text))
        command = [need_program("haproxy", "haproxy"), "-db", "-f", str(config)]
        self._others.append(self.supervise(self.logs / "haproxy.log", [], command))
        until(self.proxy_answers, "HAProxy has found the primary")

    def proxy_answers(self) -> bool:
        with suppress(psycopg.OperationalError), psycopg.connect(self.proxy_url, connect_timeout=2):
            return True
        return False

    def _chown(self) -> None:
        if runs_as():
            for path in self.folder.rglob("*"):
                shutil.chown(path, runs_as())


@contextmanager
def patroni_cluster(logs: Path) -> Iterator[PatroniCluster]:
    logs.mkdir(parents=True, exist_ok=True)
    cluster = PatroniCluster(logs)
    try:
        yield cluster.start()
    finally:
        cluster.remove()
