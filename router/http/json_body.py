"""Reads a request's JSON body: bounded, off the event loop when it is long, with errors in OpenAI's shape."""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from router.http.http_error import HttpError, bad_request

_Decoded = TypeVar("_Decoded")

# Above this, parsing and decoding take over a millisecond (about 100 MB/s each) and go to a thread.
INLINE_BYTES = 256 * 1024
READ_TIMEOUT_S = 60.0
_SURROGATE_ESCAPE = re.compile(rb"\\u[dD][89a-fA-F]")


async def read_json(
    request: Request, decode: Callable[[Mapping[str, Any]], _Decoded], *, max_body_bytes: int
) -> _Decoded:
    """The body, decoded by `decode`, which must be pure: it may run in a thread.

    Raises HttpError: 400 for what is not a JSON object in UTF-8, 413 for more than `max_body_bytes`, 408 when the
    body does not come, 499 when the client goes away; and what `decode` raises.
    """
    try:
        async with asyncio.timeout(READ_TIMEOUT_S):
            body = await _read(request, max_body_bytes)
    except TimeoutError:
        message = f"the request's body did not arrive within {READ_TIMEOUT_S:g} seconds"
        raise HttpError(status=408, message=message, type="timeout_error") from None
    except ClientDisconnect:
        raise HttpError(status=499, message="the client went away", type="cancelled_error") from None
    if len(body) <= INLINE_BYTES:
        return decode(_parse(body))
    return await asyncio.to_thread(lambda: decode(_parse(body)))


async def _read(request: Request, max_body_bytes: int) -> bytes:
    too_large = HttpError(
        status=413, message=f"the body is larger than {max_body_bytes} bytes", type="invalid_request_error"
    )
    declared = request.headers.get("content-length", "")
    # A client that is still sending would see a broken connection instead of the answer, so a body that is a
    # little too large is read and dropped; one that is far too large is not.
    if declared.isdecimal() and int(declared) > 4 * max_body_bytes:
        raise too_large
    chunks: list[bytes] = []
    size = 0
    async for chunk in request.stream():
        size += len(chunk)
        if size > 4 * max_body_bytes:
            raise too_large
        if size <= max_body_bytes:
            chunks.append(chunk)
        else:
            chunks.clear()
    if size > max_body_bytes:
        raise too_large
    return b"".join(chunks)


def _parse(body: bytes) -> Mapping[str, Any]:
    try:
        text = body.decode("utf-8")
    except UnicodeDecodeError as error:
        raise bad_request(f"the body is not valid UTF-8: {error.reason} at byte {error.start}") from None
    try:
        value = json.loads(text)
    except RecursionError:
        raise bad_request("the body is not JSON that can be read: nested too deeply") from None
    except ValueError as error:  # malformed, or a number of more digits than Python reads
        raise bad_request(f"the body is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise bad_request("the body must be a JSON object")
    if _SURROGATE_ESCAPE.search(body):
        _check_surrogates(value)
    return value


def _check_surrogates(value: Any) -> None:
    """Escapes can spell half of a character, which is no Unicode text and can't be encoded again."""
    try:
        json.dumps(value, ensure_ascii=False).encode("utf-8")
    except UnicodeEncodeError:
        raise bad_request("the body holds an unpaired surrogate (\\ud800 to \\udfff): not Unicode text") from None
