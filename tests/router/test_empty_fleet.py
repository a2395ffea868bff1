"""A router whose workers have not come yet: it knows its model, and asks for patience."""

from __future__ import annotations

from typing import Any

import pytest

from common.errors import ModelNotFoundError, UnavailableError
from protos import inference_pb2
from router.api.inference import InferenceServicer
from tests.support.conducting import Scene


@pytest.fixture
async def empty(scene: Scene) -> Scene:
    await scene.core._fleet.close()
    return scene


@pytest.mark.parametrize("model", ["", "model"])
async def test_its_own_model_is_unavailable(empty: Scene, model: str) -> None:
    with pytest.raises(UnavailableError, match="no worker has registered yet for model 'model'"):
        await empty.ask(model=model)


async def test_another_model_is_not_found(empty: Scene) -> None:
    with pytest.raises(ModelNotFoundError, match="served: model"):
        await empty.ask(model="other")


async def test_its_own_model_is_listed_without_lengths(empty: Scene) -> None:
    (card,) = empty.core.models()
    assert (card.id, card.max_model_len, card.vocab_size) == ("model", None, None)
    context: Any = None
    response = await InferenceServicer(empty.core).ListModels(inference_pb2.ListModelsRequest(), context)
    assert [(model.id, model.max_model_len) for model in response.models] == [("model", 0)]
