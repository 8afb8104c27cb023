"""Fetch a page or an API answer from the web, from public addresses only."""

import http.client
import socket
import ssl
import time
from contextlib import closing
from dataclasses import dataclass
from email.message import Message
from urllib.parse import urljoin

from runner import SkillContext, ToolError

from .guard import Resolve, Target, check
from .readable import readable

MAX_BYTES = 2_000_000
MAX_REDIRECTS = 5
SOCKET_TIMEOUT_S = 15.0
MARGIN_S = 0.5  # before the runner's own deadline, so that our message is the one that is read
REDIRECTS = frozenset({301, 302, 303, 307, 308})
MAY_WORK_LATER = frozenset({408, 425, 429})
HEADERS = {
    "User-Agent": "slotrunner",
    "Accept": "text/html, application/json, text/*;q=0.9, */*;q=0.5",
    "Accept-Encoding": "identity",
    "Connection": "close",
}


@dataclass(frozen=True)
class Answer:
    """What a server said. `cut`: there was more than `MAX_BYTES`."""

    status: int
    reason: str
    headers: Message
    data: bytes
    cut: bool


def fetch_url(url: str, ctx: SkillContext, max_chars: int = 20_000) -> str:
    """The final address and status on the first line, then the text."""
    final, answer = follow(url, ctx)
    text = readable(answer.data, answer.headers)
    if answer.status >= http.client.BAD_REQUEST:
        raise _refused(final, answer, text)
    notes = [f"[only the first {MAX_BYTES:,} bytes]"] if answer.cut else []
    if len(text) > max_chars:
        notes.append(f"[the first {max_chars:,} of {len(text):,} characters]")
    head = f"{final} ({answer.status}, {answer.headers.get_content_type()})"
    return "\n".join([head, *notes, "", text[:max_chars] or "(no text)"])


def follow(
    url: str, ctx: SkillContext, resolve: Resolve = socket.getaddrinfo
) -> tuple[str, Answer]:
    """The last address and its answer; each on the way is checked before it is reached."""
    for _ in range(MAX_REDIRECTS + 1):
        answer = _get(check(url, ctx.scopes("net"), resolve), ctx)
        place = answer.headers.get("location")
        if answer.status not in REDIRECTS or not place:
            return url, answer
        url = urljoin(url, place)
    raise ToolError(f"more than {MAX_REDIRECTS} redirects; the last one led to {url}")


def _get(target: Target, ctx: SkillContext) -> Answer:
    path = target.url.path or "/"
    query = f"?{target.url.query}" if target.url.query else ""
    connection = http.client.HTTPConnection(target.host, target.port)
    connection.default_port = 443 if target.url.scheme == "https" else 80  # for the Host header
    connection.sock = _connected(target, ctx)  # the checked address, never looked up again
    with closing(connection):
        try:
            connection.request("GET", _quoted(path + query), headers=HEADERS)
            response = connection.getresponse()
            data, cut = _body(response, ctx)
        except (http.client.HTTPException, OSError) as error:
            raise _unreachable(target.host, error) from error
    return Answer(response.status, response.reason, response.headers, data, cut)


def _connected(target: Target, ctx: SkillContext) -> socket.socket:
    """A socket to the first checked address that answers, inside TLS for https."""
    failure = OSError("it has no address")
    for address in target.addresses:
        try:
            plain = socket.create_connection((address, target.port), _timeout(ctx))
            return _secured(plain, target) if target.url.scheme == "https" else plain
        except ssl.SSLCertVerificationError as error:
            raise ToolError(f"{target.host}: {error.verify_message}; not fetched") from error
        except OSError as error:
            failure = error
    raise _unreachable(target.host, failure)


def _secured(plain: socket.socket, target: Target) -> socket.socket:
    try:
        return ssl.create_default_context().wrap_socket(plain, server_hostname=target.host)
    except OSError:
        plain.close()
        raise


def _body(response: http.client.HTTPResponse, ctx: SkillContext) -> tuple[bytes, bool]:
    """At most `MAX_BYTES`, and whether there was more."""
    data = bytearray()
    until = time.monotonic() + max(0.1, ctx.remaining() - MARGIN_S)
    while len(data) <= MAX_BYTES and (part := response.read1(65_536)):
        data += part
        if time.monotonic() > until or ctx.cancelled():
            raise TimeoutError("the answer did not end in time")
    cut = len(data) > MAX_BYTES
    if response.length and not cut:
        raise ConnectionError(f"{response.length:,} bytes of the answer are missing")
    return bytes(data[:MAX_BYTES]), cut


def _refused(url: str, answer: Answer, text: str) -> ToolError:
    again = answer.status in MAY_WORK_LATER or answer.status >= http.client.INTERNAL_SERVER_ERROR
    wait = answer.headers.get("retry-after")
    when = f"; it says to wait {wait}" if wait else ""
    said = f": {text[:300]}" if text else ""
    return ToolError(f"{url} answered {answer.status} {answer.reason}{when}{said}", again)


def _unreachable(host: str, error: Exception) -> ToolError:
    reason = str(error) or type(error).__name__
    return ToolError(f"{host} could not be reached or broke off: {reason}", retryable=True)


def _timeout(ctx: SkillContext) -> float:
    return max(0.1, min(SOCKET_TIMEOUT_S, ctx.remaining() - MARGIN_S))


def _quoted(path: str) -> str:
    """The path with everything outside ASCII percent-encoded; what is encoded stays."""
    return "".join(c if c.isascii() else "".join(f"%{b:02X}" for b in c.encode()) for c in path)
