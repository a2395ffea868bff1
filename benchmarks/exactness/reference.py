"""What transformers generated for one prompt, and the committed file of all of them.

Owns the file's format. The served side is compared with it in `compare`; `references` makes it.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.exactness.corpus import FOLDER, Source, sources

REFERENCES_PATH = FOLDER / "references.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class Reference:
    """Greedy tokens of one prompt. At each step: logits' distance from the most likely token to the runner-up."""

    name: str
    prompt_token_ids: tuple[int, ...]
    token_ids: tuple[int, ...]
    gaps: tuple[float, ...]  # logit units, one per token
    runner_ups: tuple[int, ...]  # token ids, one per token

    def __post_init__(self) -> None:
        assert len(self.token_ids) == len(self.gaps) == len(self.runner_ups)

    def first(self, num_tokens: int) -> Reference:
        """The same, cut to its first new tokens."""
        return replace(
            self,
            token_ids=self.token_ids[:num_tokens],
            gaps=self.gaps[:num_tokens],
            runner_ups=self.runner_ups[:num_tokens],
        )

    @property
    def source(self) -> Source:
        return next(source for source in sources() if source.name == self.name)


@dataclass(frozen=True, slots=True, kw_only=True)
class References:
    """`weights_digest` is SHA-256 over the weights that they were made from; versions are for people."""

    weights_digest: str
    made_with: dict[str, str]
    references: tuple[Reference, ...]

    def save(self, path: Path = REFERENCES_PATH) -> None:
        """Writes one line per prompt, so that a change of one is a change of one line."""
        head = {"weights_digest": self.weights_digest, "made_with": self.made_with}
        lines = ",\n".join(json.dumps(asdict(reference), separators=(",", ":")) for reference in self.references)
        path.write_text(f"{json.dumps(head)[:-1]},\n" + f'"references": [\n{lines}\n]}}\n', encoding="utf-8")


def load_references(path: Path = REFERENCES_PATH) -> References:
    document = json.loads(path.read_text(encoding="utf-8"))
    return References(
        weights_digest=document["weights_digest"],
        made_with=document["made_with"],
        references=tuple(_reference(entry) for entry in document["references"]),
    )


def weights_digest(folder: Path) -> str:
    """SHA-256 over name, dtype, shape and bytes of every weight, whatever the files they lie in."""
    import torch
    from safetensors import safe_open

    digest = hashlib.sha256()
    places: dict[str, Path] = {}
    for file in sorted(folder.glob("*.safetensors")):
        with safe_open(file, framework="pt") as tensors:
            places.update(dict.fromkeys(tensors.keys(), file))
    if not places:
        raise FileNotFoundError(f"{folder} holds no safetensors")
    for name in sorted(places):
        with safe_open(places[name], framework="pt") as tensors:
            tensor = tensors.get_tensor(name)
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}\n".encode())
        digest.update(tensor.contiguous().flatten().view(torch.uint8).numpy().tobytes())
    return digest.hexdigest()


def _reference(entry: dict[str, Any]) -> Reference:
    return Reference(name=entry["name"], **{key: tuple(value) for key, value in entry.items() if key != "name"})
