"""A program that sends webhooks to a name whose address changes, and to one that is never resolved. Run it in network
and mount namespaces of its own.
"""

import asyncio
import json
import socket
import subprocess
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

from watchword.notices.webhook_client import WebhookClient
from watchword.outbound.addresses import MAX_LOOKUPS
from watchword.outbound.client import OutboundProcess
from watchword.outbound.rules import AnswerBounds, OutboundError, OutboundRequest, parse_url

ANSWERS = ["8.8.8.8", "127.0.0.1"]
HANGING = b"\x07hanging"
PROVIDER = "http://provider.example:443/"
HUNG = 40
"""More webhooks than there are lookups at once."""
TYPE_A = b"\x00\x01"


class NameServer:
    """Answers each lookup of an IPv4 address with the next of ANSWERS, and never with IPv6."""

    def __init__(self) -> None:
        self.lookups = 0
        self.hung = 0
        self._socket = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._socket.bind(("127.0.0.1", 53))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            query, client = self._socket.recvfrom(512)
            if query[12:].startswith(HANGING):
                self.hung += 1
                continue
            end = query.index(b"\x00", 12) + 5
            record = b""
            if query[end - 4 : end - 2] == TYPE_A:
                address = ANSWERS[min(self.lookups, len(ANSWERS) - 1)]
                self.lookups += 1
                record = b"\xc0\x0c\x00\x01\x00\x01\x00\x00\x00\x00\x00\x04" + socket.inet_aton(address)
            counts = b"\x00\x01" + (b"\x00\x01" if record else b"\x00\x00") + b"\x00\x00\x00\x00"
            self._socket.sendto(query[:2] + b"\x81\x80" + counts + query[12:end] + record, client)


class Listener:
    def __init__(self) -> None:
        self.connections = 0
        self._socket = socket.create_server(("127.0.0.1", 443))
        threading.Thread(target=self._serve, daemon=True).start()

    def _serve(self) -> None:
        while True:
            self._socket.accept()[0].close()
            self.connections += 1


def main() -> None:
    subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    with tempfile.TemporaryDirectory() as folder:
        for name, text in (("resolv.conf", "nameserver 127.0.0.1\n"), ("hosts", "127.0.0.1 localhost\n")):
            file = Path(folder) / name
            file.write_text(text)
            subprocess.run(["mount", "--bind", str(file), f"/etc/{name}"], check=True)
        names, listener = NameServer(), Listener()

        async def send() -> dict[str, Any]:
            outbound = OutboundProcess({})
            client = WebhookClient(outbound, (), lambda: time.time_ns() // 1_000_000, allow_http=False)
            errors = [(await client.send("https://rebinding.example/", {}, b"{}")).error for _ in ANSWERS]
            counts: dict[str, Any] = {"connections": listener.connections, "lookups": names.lookups}
            sent = [asyncio.ensure_future(client.send("https://hanging.example/", {}, b"{}")) for _ in range(HUNG)]
            while names.hung < 2 * MAX_LOOKUPS:  # noqa: ASYNC110 - counted in a thread; for both families of addresses
                await asyncio.sleep(0.01)
            asked = OutboundRequest("GET", parse_url(PROVIDER), AnswerBounds(8.0, 1_000, 10, 0))
            try:
                await outbound.send(asked)
            except OutboundError as error:
                counts["provider"] = error.problem.value
            for one in sent:
                one.cancel()
            await asyncio.wait(sent)
            await outbound.close()
            return {"errors": errors, **counts}

        print(json.dumps(asyncio.run(send())))
        for name in ("resolv.conf", "hosts"):
            subprocess.run(["umount", f"/etc/{name}"], check=True)


if __name__ == "__main__":
    main()
