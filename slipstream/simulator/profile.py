"""What a simulated worker is like: the speed of its steps, its memory, its network. Read from JSON."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from common.cost import StepTimes
from common.errors import ConfigError
from slipstream.simulator.step_model import LinearModel, RooflineModel, StepModel

DEFAULT_PROFILE = "h100-llama-3.1-8b"
WHOLE_NUMBERS = ("kv_capacity_tokens", "chunk_tokens", "max_num_seqs")
NUMBERS = ("kv_capacity_tokens", "kv_bytes_per_token", "chunk_tokens", "max_num_seqs", "transfer_bytes_per_s")


@dataclass(frozen=True, slots=True, kw_only=True)
class Profile:
    """`source` says where the numbers come from. `chunk_tokens` are computed by one prefill step at most."""

    name: str
    source: str
    model: StepModel
    kv_capacity_tokens: int
    kv_bytes_per_token: float
    chunk_tokens: int
    max_num_seqs: int
    transfer_bytes_per_s: float


def profile_names() -> list[str]:
    """Those that are shipped."""
    folder = resources.files("slipstream.simulator") / "profiles"
    return sorted(entry.name.removesuffix(".json") for entry in folder.iterdir() if entry.name.endswith(".json"))


def load_profile(name: str) -> Profile:
    """A shipped profile by name, or a file. Raises ConfigError."""
    if name in profile_names():
        text = (resources.files("slipstream.simulator") / "profiles" / f"{name}.json").read_text(encoding="utf-8")
    elif Path(name).is_file():
        try:
            text = Path(name).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError("profile", f"{name} can't be read: {error}") from None
    else:
        raise ConfigError("profile", f"must be a file or one of {', '.join(profile_names())}, is {name!r}")
    try:
        document = json.loads(text)
    except ValueError as error:
        raise ConfigError("profile", f"{name} is not valid JSON: {error}") from None
    if not isinstance(document, dict):
        raise ConfigError("profile", f"{name} must hold one JSON object")
    return parse_profile(document, name)


def parse_profile(document: Mapping[str, Any], name: str) -> Profile:
    """Raises ConfigError with the field that is wrong."""
    kind = document.get("kind")
    if kind not in ("linear", "roofline"):
        raise ConfigError("profile", f"{name}: kind: must be linear or roofline, is {kind!r}")
    numbers = {field: _number(document, field, name) for field in NUMBERS}
    return Profile(
        name=str(document.get("name", name)),
        source=str(document.get("source", "")),
        model=_linear(document, name) if kind == "linear" else _roofline(document, name),
        kv_capacity_tokens=int(numbers["kv_capacity_tokens"]),
        kv_bytes_per_token=numbers["kv_bytes_per_token"],
        chunk_tokens=int(numbers["chunk_tokens"]),
        max_num_seqs=int(numbers["max_num_seqs"]),
        transfer_bytes_per_s=numbers["transfer_bytes_per_s"],
    )


def _linear(document: Mapping[str, Any], name: str) -> LinearModel:
    times: StepTimes = _fields(StepTimes, document.get("linear"), f"{name}: linear", {})
    if times.step_s <= 0:
        raise ConfigError("profile", f"{name}: linear: step_s: must be above 0")
    return LinearModel(times)


def _roofline(document: Mapping[str, Any], name: str) -> RooflineModel:
    shared = {"kv_bytes_per_token": document.get("kv_bytes_per_token")}
    model: RooflineModel = _fields(RooflineModel, document.get("roofline"), f"{name}: roofline", shared)
    return model


def _fields(build: Callable[..., Any], values: Any, place: str, shared: Mapping[str, Any]) -> Any:
    if not isinstance(values, Mapping):
        raise ConfigError("profile", f"{place}: must be an object")
    values = {**shared, **values}
    known = {one.name: one for one in dataclasses.fields(build)}  # type: ignore[arg-type]
    for key in values:
        if key not in known:
            raise ConfigError("profile", f"{place}: {key}: is no field; known: {', '.join(known)}")
    for key, one in known.items():
        if key not in values and one.default is dataclasses.MISSING:
            raise ConfigError("profile", f"{place}: {key}: is missing")
    try:
        return build(**values)
    except (ValueError, TypeError) as error:
        raise ConfigError("profile", f"{place}: {error}") from None


def _number(document: Mapping[str, Any], field: str, name: str) -> float:
    value = document.get(field)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < math.inf:
        raise ConfigError("profile", f"{name}: {field}: must be a number above 0, is {value!r}")
    if field in WHOLE_NUMBERS and value != int(value):
        raise ConfigError("profile", f"{name}: {field}: must be a whole number, is {value!r}")
    return value
