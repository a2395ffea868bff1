"""A folder of safetensors files: what tensors it holds, their bytes, and nothing of what they mean.

Headers are read directly, so that sizes and samples are known before anything is loaded. Nothing is unpickled, ever.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open

from common.errors import UnsupportedModelError
from common.model.architecture import read_json

DTYPES = {"F32": "float32", "BF16": "bfloat16", "F16": "float16"}
MAX_HEADER_BYTES = 100_000_000  # the format's own limit


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorEntry:
    """Where a tensor lies in a file."""

    name: str
    path: Path
    dtype: str  # a value of DTYPES
    shape: tuple[int, ...]
    offset: int  # bytes from the file's start
    num_bytes: int

    @property
    def num_elements(self) -> int:
        count = 1
        for size in self.shape:
            count *= size
        return count


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """The tensors of a model folder by name."""

    folder: Path
    entries: dict[str, TensorEntry]

    @classmethod
    def open(cls, folder: Path) -> Checkpoint:
        """Raises UnsupportedModelError when the files are missing, cut short, pickled or quantised."""
        entries = {entry.name: entry for path in _weight_files(folder) for entry in _read_header(path)}
        return cls(folder=folder, entries=entries)

    @property
    def dtype(self) -> str:
        """The dtype that holds most elements."""
        counts: dict[str, int] = {}
        for entry in self.entries.values():
            counts[entry.dtype] = counts.get(entry.dtype, 0) + entry.num_elements
        return max(counts, key=lambda dtype: counts[dtype])

    @property
    def num_elements(self) -> int:
        return sum(entry.num_elements for entry in self.entries.values())

    @contextmanager
    def reader(self) -> Iterator[TensorReader]:
        """Tensors by name, mapped from the files and valid inside the context."""
        with ExitStack() as stack:
            files = {
                path: stack.enter_context(safe_open(path, framework="pt"))
                for path in sorted({entry.path for entry in self.entries.values()})
            }
            yield TensorReader(self, files)


class TensorReader:
    """Reads tensors of an open checkpoint."""

    def __init__(self, checkpoint: Checkpoint, files: dict[Path, Any]) -> None:
        self._checkpoint = checkpoint
        self._files = files

    def read(self, name: str) -> torch.Tensor:
        """Raises UnsupportedModelError when the checkpoint has no such tensor."""
        entry = self._checkpoint.entries.get(name)
        if entry is None:
            raise UnsupportedModelError(f"{self._checkpoint.folder} has no tensor {name}, which its config.json needs")
        tensor: torch.Tensor = self._files[entry.path].get_tensor(name)
        return tensor


def _weight_files(folder: Path) -> list[Path]:
    index = folder / "model.safetensors.index.json"
    if index.exists():
        files = [folder / name for name in sorted(set(read_json(index)["weight_map"].values()))]
    else:
        files = sorted(folder.glob("*.safetensors"))
    missing = [path.name for path in files if not path.exists()]
    if missing:
        raise UnsupportedModelError(f"{folder} lacks {', '.join(missing)}, which {index.name} names")
    if not files:
        pickled = [path.name for path in sorted(folder.glob("*.bin")) + sorted(folder.glob("*.pt*"))]
        if pickled:
            raise UnsupportedModelError(
                f"{folder} has pickled weights ({pickled[0]}), which can run code when they are loaded; "
                "convert them to safetensors"
            )
        raise UnsupportedModelError(f"{folder} has no *.safetensors files")
    return files


def _read_header(path: Path) -> list[TensorEntry]:
    file_bytes = os.path.getsize(path)
    with path.open("rb") as file:
        prefix = file.read(8)
        header_bytes = struct.unpack("<Q", prefix)[0] if len(prefix) == 8 else MAX_HEADER_BYTES + 1
        if header_bytes > min(MAX_HEADER_BYTES, file_bytes - 8):
            raise UnsupportedModelError(f"{path} is not a whole safetensors file")
        header: dict[str, Any] = json.loads(file.read(header_bytes))
    entries = []
    for name, fields in header.items():
        if name == "__metadata__":
            continue
        start, end = fields["data_offsets"]
        if fields["dtype"] not in DTYPES:
            raise UnsupportedModelError(
                f"{path} holds {name} as {fields['dtype']}; supported are: {', '.join(DTYPES)} (not quantised ones)"
            )
        if 8 + header_bytes + end > file_bytes:
            raise UnsupportedModelError(f"{path} is cut short: {name} ends behind the file's end")
        entries.append(
            TensorEntry(
                name=name,
                path=path,
                dtype=DTYPES[fields["dtype"]],
                shape=tuple(fields["shape"]),
                offset=8 + header_bytes + start,
                num_bytes=end - start,
            )
        )
    return entries
