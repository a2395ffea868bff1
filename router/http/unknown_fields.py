"""Fields that this API does not have: slips of the pen are refused, the rest is ignored aloud.

Clients of OpenAI's API send fields of many servers, so an unknown one is no error. One that was meant for another
would be: `topk` ignored is an answer drawn otherwise than asked.
"""

from __future__ import annotations

import difflib
import logging
from collections.abc import Iterable, Mapping

logger = logging.getLogger(__name__)

# Of names without underscores. `maxtoken` is 0.94 like `maxtokens`; the nearest that differ in meaning, `topa` of
# other servers and `topp`, are 0.75 alike.
CUTOFF = 0.85
MAX_TOLD = 100
MAX_NAME_CHARS = 60

# What other servers and the other API call our fields.
_OTHER_NAMES: Mapping[str, str] = {
    "timeout": "deadline_ms",
    "timeouts": "deadline_ms",
    "timeoutms": "deadline_ms",
    "maxcompletiontokens": "max_tokens",
    "maxoutputtokens": "max_tokens",
    "stopsequences": "stop",
    "stopstrings": "stop",
    "repeatpenalty": "repetition_penalty",
    "toplogprobs": "logprobs",
    "numreturnsequences": "n",
}


def find_meant(name: str, known: Iterable[str]) -> str | None:
    """The known field that an unknown one was probably meant for."""
    squeezed = {_squeeze(field): field for field in known}
    asked = _squeeze(name)
    other = _OTHER_NAMES.get(asked)
    if other is not None and other in squeezed.values():
        return other
    matches = difflib.get_close_matches(asked, squeezed, n=1, cutoff=CUTOFF)
    return squeezed[matches[0]] if matches else None


class UnknownFields:
    """Warns of each ignored field once. Bounded: of names beyond the limit nothing is said. On the event loop."""

    def __init__(self) -> None:
        self._told: set[str] = set()

    def tell(self, names: Iterable[str]) -> None:
        for name in names:
            shown = name[:MAX_NAME_CHARS]
            if shown not in self._told and len(self._told) < MAX_TOLD:
                self._told.add(shown)
                logger.warning("a request's field %r means nothing here and is ignored; this is told once", shown)


def _squeeze(name: str) -> str:
    return name[:MAX_NAME_CHARS].lower().replace("_", "").replace("-", "")
