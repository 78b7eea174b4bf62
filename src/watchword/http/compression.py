"""gzip for responses that are made per request."""

import asyncio
import re
import zlib

from watchword.http.requests import Request, Response

MIN_BYTES = 1_024
LARGE_BYTES = 64 * 1024
"""More than this would hold up the event loop; a thread compresses it."""
LEVEL = 1
"""Five times as fast as the default level, for a result that is a fifth larger."""
_Q_ZERO = re.compile(r"q\s*=\s*0(\.0*)?")


async def compressed(request: Request, response: Response) -> Response:
    """The response compressed, if it is large enough and the client accepts it. Never call this for a response with a
    secret next to text that somebody else may choose.
    """
    status, headers, body = response
    if len(body) < MIN_BYTES or not accepts_gzip(request.header("accept-encoding")):
        return response
    packed = _gzip(body) if len(body) <= LARGE_BYTES else await asyncio.to_thread(_gzip, body)
    return Response(status, [*headers, ("content-encoding", "gzip"), ("vary", "accept-encoding")], packed)


def _gzip(body: bytes) -> bytes:
    packer = zlib.compressobj(LEVEL, wbits=31)
    return packer.compress(body) + packer.flush()


def accepts_gzip(accepted: str) -> bool:
    for word in accepted.lower().split(","):
        coding, _, weight = word.partition(";")
        if coding.strip() == "gzip":
            return not _Q_ZERO.fullmatch(weight.strip())
    return False
