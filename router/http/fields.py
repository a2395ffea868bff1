"""Typed access to the fields of a JSON object, with errors that name the field."""

from __future__ import annotations

import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

from common.errors import InvalidRequestError
from router.http.unknown_fields import MAX_NAME_CHARS, find_meant

# A search for what a name was meant for takes about 0.2 ms; of more names in one object nothing is said.
MAX_UNKNOWN = 20


class Fields:
    """One JSON object being decoded. Null reads as absent, as in OpenAI's API.

    Each getter raises InvalidRequestError naming the field, with `prefix` before it inside nested objects.
    """

    def __init__(self, values: Mapping[str, Any], prefix: str = "", unknown: list[str] | None = None) -> None:
        self._values = values
        self._prefix = prefix
        self._known: set[str] = set()
        self._unknown: list[str] = [] if unknown is None else unknown  # shared with nested objects

    def raw(self, name: str) -> Any:
        """The value as it came, None when absent."""
        self._known.add(name)
        return self._values.get(name)

    def is_given(self, name: str) -> bool:
        """Whether the field is there, even as null."""
        self._known.add(name)
        return name in self._values

    def text(self, name: str) -> str | None:
        value = self.raw(name)
        if value is not None and not isinstance(value, str):
            raise self.wrong(name, "must be a string", value)
        return value

    def flag(self, name: str) -> bool | None:
        value = self.raw(name)
        if value is not None and not isinstance(value, bool):
            raise self.wrong(name, "must be true or false", value)
        return value

    def integer(self, name: str, *, limit: int = 2**63) -> int | None:
        """Below `limit`; what follows packs it into 64 bits."""
        value = self.raw(name)
        return None if value is None else self._to_integer(name, value, limit)

    def number(self, name: str) -> float | None:
        value = self.raw(name)
        return None if value is None else self.to_number(name, value)

    def object(self, name: str) -> Fields | None:
        value = self.mapping(name)
        return None if value is None else Fields(value, f"{self._prefix}{name}.", self._unknown)

    def mapping(self, name: str) -> Mapping[str, Any] | None:
        value = self.raw(name)
        if value is not None and not isinstance(value, dict):
            raise self.wrong(name, "must be an object", value)
        return value

    def items(self, name: str) -> Sequence[Any] | None:
        value = self.raw(name)
        if value is not None and not isinstance(value, list):
            raise self.wrong(name, "must be an array", value)
        return value

    def texts(self, name: str) -> tuple[str, ...]:
        values = self.items(name) or ()
        for value in values:
            if not isinstance(value, str):
                raise self.wrong(name, "must hold strings", value)
        return tuple(values)

    def integers(self, name: str) -> tuple[int, ...]:
        return tuple(self._to_integer(name, value, 2**31) for value in self.items(name) or ())

    def to_number(self, name: str, value: Any) -> float:
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            raise self.wrong(name, "must be a number", value)
        try:
            number = float(value)
        except OverflowError:
            number = math.inf
        # Python's JSON reads NaN and Infinity, and 1e999 as infinity.
        if not math.isfinite(number):
            raise self.wrong(name, "must be a finite number", value)
        return number

    def wrong(self, name: str, expected: str, value: Any) -> InvalidRequestError:
        return InvalidRequestError(self._prefix + name, f"{expected}, is {_shown(value)}")

    def refused(self, name: str, why: str) -> InvalidRequestError:
        return InvalidRequestError(self._prefix + name, why)

    def ignore(self, *names: str) -> None:
        """Fields that clients may send and that change no answer."""
        self._known.update(names)

    def end(self) -> tuple[str, ...]:
        """The names of unknown fields, nested ones included. Call it last: known is what was asked for.

        Raises InvalidRequestError for one that was probably meant for a known one.
        """
        unknown = (name for name in self._values if name not in self._known)
        for name in itertools.islice(unknown, MAX_UNKNOWN):
            meant = find_meant(name, self._known)
            if meant is not None:
                raise self.refused(name[:MAX_NAME_CHARS], f"is no field here; is {self._prefix}{meant} meant?")
            self._unknown.append(self._prefix + name)
        return tuple(self._unknown)

    def _to_integer(self, name: str, value: Any, limit: int) -> int:
        if isinstance(value, float) and value.is_integer():
            value = int(value)  # 16.0, as some clients write it
        if isinstance(value, bool) or not isinstance(value, int):
            raise self.wrong(name, "must be an integer", value)
        if not -(2**63) <= value < limit:
            raise self.wrong(name, f"must be below {limit}", value)
        return value


def _shown(value: Any) -> str:
    if isinstance(value, (dict, list)):
        return "an object" if isinstance(value, dict) else "an array"
    if isinstance(value, int) and not isinstance(value, bool) and value.bit_length() > 128:
        return "a very large number"
    text = "null" if value is None else repr(value)
    return text if len(text) <= 60 else text[:57] + "..."
