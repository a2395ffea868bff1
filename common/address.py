"""Addresses as people write them: `host:port`."""

from __future__ import annotations

from ipaddress import ip_address
from urllib.parse import urlsplit


def check_address(text: str) -> None:
    """ValueError, which says what it must be, unless the text is a host and a port from 1 to 65535."""
    host, _, port = text.rpartition(":")
    if not _is_host(host) or not (port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
        raise ValueError(f"must be host:port, such as 127.0.0.1:50051 or [::1]:50051, is {text!r}")


def is_wildcard(host: str) -> bool:
    """Whether a host to listen on stands for every address of the machine, so that nobody can call it."""
    return host in ("", "0.0.0.0", "::", "[::]")


def is_loopback(host: str) -> bool:
    """Whether only this machine reaches a server that listens there."""
    name = host.removeprefix("[").removesuffix("]")
    if name == "localhost":
        return True
    try:
        return ip_address(name).is_loopback
    except ValueError:
        return False


def callable_address(address: str) -> str:
    """`host:port` that this machine can call a server by that listens there, whose host may be a wildcard."""
    host, _, port = address.rpartition(":")
    if not is_wildcard(host):
        return address
    return f"[::1]:{port}" if ":" in host else f"127.0.0.1:{port}"


def without_password(url: str) -> str:
    """A URL that may be shown and logged."""
    parts = urlsplit(url)
    if parts.password is None:
        return url
    user = parts.username or ""
    return parts._replace(netloc=f"{user}:***@{parts.netloc.rpartition('@')[2]}").geturl()


def _is_host(text: str) -> bool:
    if text.startswith("["):
        return text.endswith("]") and ":" in text and len(text) > 3
    return bool(text) and not any(mark in text for mark in "/:@[] \t\n")
