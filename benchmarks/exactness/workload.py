"""What every case serves: the model, its prompts, and their references."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

from benchmarks.exactness.reference import Reference, load_references, weights_digest
from common.checkpoint import resolve_model


@dataclass(frozen=True, slots=True, kw_only=True)
class Workload:
    """Requests ask for `num_new_tokens` tokens where a fleet says nothing else; references hold no fewer.

    `bytes_per_token` is of the KV cache in float32.
    """

    model: Path
    references: tuple[Reference, ...]
    num_new_tokens: int
    bytes_per_token: int


def load_workload(*, num_new_tokens: int, names: tuple[str, ...] = ()) -> Workload:
    """The demo model with all committed references, or those named.

    Raises ValueError when the references were made from other weights.
    """
    folder = resolve_model("demo")
    committed = load_references()
    found = weights_digest(folder)
    if committed.weights_digest != found:
        raise ValueError(
            f"the references were made from weights {committed.weights_digest}, {folder} holds {found}: "
            "run python -m benchmarks.exactness.references"
        )
    by_name = {reference.name: reference for reference in committed.references}
    references = tuple(by_name[name] for name in names) or committed.references
    return Workload(
        model=folder,
        references=references,
        num_new_tokens=num_new_tokens,
        bytes_per_token=_bytes_per_token(folder),
    )


def _bytes_per_token(folder: Path) -> int:
    config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
    head_dim = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    return int(config["num_hidden_layers"] * 2 * config["num_key_value_heads"] * head_dim * 4)
