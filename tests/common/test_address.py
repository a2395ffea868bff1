from __future__ import annotations

import pytest

from common.address import check_address, without_password


@pytest.mark.parametrize("text", ["127.0.0.1:1", "host-a.example:65535", "[::1]:7001"])
def test_a_host_and_a_port_are_an_address(text: str) -> None:
    check_address(text)


@pytest.mark.parametrize(
    "text",
    ["", "host", "host:", ":7001", "host:0", "host:65536", "host:x", "http://host:1", "::1:7001", "a b:1"],
)
def test_anything_else_is_refused_with_what_it_must_be(text: str) -> None:
    with pytest.raises(ValueError, match="must be host:port, such as") as caught:
        check_address(text)
    assert repr(text) in str(caught.value)


def test_a_password_is_not_shown() -> None:
    assert without_password("redis://me:secret@a:1/0") == "redis://me:***@a:1/0"
    assert without_password("redis://a:1") == "redis://a:1"
    assert without_password("unix:///tmp/index.sock") == "unix:///tmp/index.sock"
