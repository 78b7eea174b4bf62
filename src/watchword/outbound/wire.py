"""What a worker and its outbound process send each other: frames of a JSON object and bytes, their lengths first."""

import asyncio
import ipaddress
import json
import struct
from typing import Any

from watchword.outbound import rules as outbound
from watchword.outbound.rules import AddressRule, AnswerBounds, OutboundAnswer, OutboundError, OutboundRequest

MAX_HEAD = 1024 * 1024
MAX_BODY = 2 * 1024 * 1024
_LENGTHS = struct.Struct(">II")


def frame(head: dict[str, Any], body: bytes = b"") -> bytes:
    encoded = json.dumps(head).encode()
    return _LENGTHS.pack(len(encoded), len(body)) + encoded + body


async def read_frame(reader: asyncio.StreamReader) -> tuple[dict[str, Any], bytes]:
    """`EOFError` where the other process ended, `ValueError` for what is no frame."""
    head, body = _LENGTHS.unpack(await reader.readexactly(_LENGTHS.size))
    if head > MAX_HEAD or body > MAX_BODY:
        raise ValueError("a frame is too long")
    return json.loads(await reader.readexactly(head)), await reader.readexactly(body)


def request_frame(number: int, request: OutboundRequest, *, check: bool) -> bytes:
    """With `check` only the host is looked up."""
    rule = request.rule
    head = {
        "id": number,
        "check": check,
        "method": request.method,
        "url": list(request.url),
        "bounds": list(request.bounds),
        "headers": request.headers,
        "rule": None if rule is None else [[str(network) for network in rule.networks], rule.allow_http],
    }
    return frame(head, request.body)


def cancel_frame(number: int) -> bytes:
    return frame({"id": number, "cancel": True})


def read_request(head: dict[str, Any], body: bytes) -> OutboundRequest:
    rule = None
    if head["rule"] is not None:
        networks, allow_http = head["rule"]
        rule = AddressRule(tuple(map(ipaddress.ip_network, networks)), allow_http)
    url, bounds = outbound.OutboundUrl(*head["url"]), AnswerBounds(*head["bounds"])
    return OutboundRequest(head["method"], url, bounds, head["headers"], body, rule)


def answer_frame(number: int, answer: OutboundAnswer | OutboundError) -> bytes:
    if isinstance(answer, OutboundError):
        return frame({"id": number, "problem": answer.problem.value, "message": str(answer)})
    return frame({"id": number, "status": answer.status, "whole": answer.is_whole}, answer.body)


def read_answer(head: dict[str, Any], body: bytes) -> OutboundAnswer | OutboundError:
    if "problem" in head:
        return OutboundError(outbound.OutboundProblem(head["problem"]), head["message"])
    return OutboundAnswer(head["status"], body, head["whole"])
