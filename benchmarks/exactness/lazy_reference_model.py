"""A reference model that is loaded when a tie first asks for it: most runs never do."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from benchmarks.exactness.reference import Reference

if TYPE_CHECKING:
    from benchmarks.exactness.reference_model import ReferenceModel


class LazyReferenceModel:
    """A ReferenceSource. Not for threads."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def generate(self, name: str, prompt_token_ids: Sequence[int], num_new_tokens: int) -> Reference:
        return self._model.generate(name, prompt_token_ids, num_new_tokens)

    @cached_property
    def _model(self) -> ReferenceModel:
        from benchmarks.exactness.reference_model import ReferenceModel  # takes seconds: it loads transformers

        return ReferenceModel(self._folder)
