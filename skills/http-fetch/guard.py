"""Which addresses may be fetched: public ones, and private ones that the config names."""

import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network, ip_address
from typing import Any
from urllib.parse import SplitResult, urlsplit

from runner import ToolError

Resolve = Callable[..., list[tuple[Any, ...]]]

# `is_global` is true for these although they lead into the own network or to nobody in particular.
_NEVER_V4 = (IPv4Network("192.0.0.0/24"), IPv4Network("192.88.99.0/24"))
_NEVER_V6 = (IPv6Network("2001::/23"), IPv6Network("2002::/16"))  # Teredo and kin; 6to4
_UNICAST_V6 = IPv6Network("2000::/3")  # leaves out NAT64, site-local, v4-compatible, multicast


@dataclass(frozen=True)
class Target:
    """One address that was checked, and to which alone the connection goes."""

    url: SplitResult
    host: str
    port: int
    addresses: tuple[str, ...]


def check(url: str, allowed: Iterable[str], resolve: Resolve = socket.getaddrinfo) -> Target:
    """Resolves the host once; `ToolError` when any of its addresses may not be reached."""
    parts, host, port = _parsed(url)
    addresses = _resolved(host, port, resolve)
    private = [a for a in addresses if not is_public(a)]
    if private and not is_named(host, port, allowed):
        raise ToolError(
            f"{host} leads to {private[0]}, which is not a public address; refused. "
            f'A person can allow it in the config: [permissions] "net:{host}" = "allow".'
        )
    return Target(parts, host, port, addresses)


def is_public(address: str) -> bool:
    """True for an address that belongs to one host on the public internet."""
    ip = ip_address(address)
    if isinstance(ip, IPv6Address) and ip.ipv4_mapped:
        ip = ip.ipv4_mapped
    if not ip.is_global or ip.is_multicast or ip.is_reserved:
        return False
    if isinstance(ip, IPv4Address):
        return not any(ip in network for network in _NEVER_V4)
    return ip in _UNICAST_V6 and not any(ip in network for network in _NEVER_V6)


def is_named(host: str, port: int, allowed: Iterable[str]) -> bool:
    """Whether a scope names the host: `host`, `host:port` or `*.suffix`."""
    forms = {host, f"{host}:{port}", f"[{host}]", f"[{host}]:{port}"}
    for scope in (scope.strip().lower() for scope in allowed):
        if scope in forms or (scope.startswith("*.") and host.endswith(scope[1:])):
            return True
    return False


def _parsed(url: str) -> tuple[SplitResult, str, int]:
    if any(c.isspace() or not c.isprintable() or c == "\\" for c in url):
        raise ToolError(f"{url!r} is not an address: it holds spaces, controls or backslashes")
    try:
        parts = urlsplit(url)
        port = parts.port or (443 if parts.scheme == "https" else 80)
        host = (parts.hostname or "").rstrip(".")
    except ValueError as error:
        raise ToolError(f"{url!r} is not an address: {error}") from error
    if parts.scheme not in {"http", "https"}:
        raise ToolError(f"{url!r} must begin with http:// or https://")
    if not host:
        raise ToolError(f"{url!r} names no host")
    if parts.username is not None or parts.password is not None:
        raise ToolError("an address with a user name or password in it is refused; leave them out")
    return parts, host, port


def _resolved(host: str, port: int, resolve: Resolve) -> tuple[str, ...]:
    try:
        found = resolve(host, port, type=socket.SOCK_STREAM)
    except socket.gaierror as error:
        again = error.errno == socket.EAI_AGAIN
        raise ToolError(f"no address found for host {host!r}: {error.strerror}", again) from error
    except UnicodeError as error:
        raise ToolError(f"{host!r} is not a host name") from error
    return tuple(dict.fromkeys(str(entry[4][0]) for entry in found))
