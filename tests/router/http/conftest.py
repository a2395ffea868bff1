"""The application over a scripted generator: in this process, or behind a real server."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path

import httpx
import pytest
from starlette.applications import Starlette

from router.http import create_app, serve_http
from router.metrics import RouterMetrics
from router.text import TextModel
from tests.support.scripted_generator import ScriptedGenerator
from tests.support.tokenizers import byte_level_tokenizer


@pytest.fixture(scope="session")
def text_model(tmp_path_factory: pytest.TempPathFactory) -> TextModel:
    folder: Path = tmp_path_factory.mktemp("model")
    byte_level_tokenizer().save(str(folder / "tokenizer.json"))
    return TextModel.load(folder)


AppMaker = Callable[..., Starlette]


@pytest.fixture
def make_app(text_model: TextModel) -> AppMaker:
    def make(generator: ScriptedGenerator, *, not_ready: str | None = None, **options: object) -> Starlette:
        return create_app(generator, text=text_model, metrics=RouterMetrics(), readiness=lambda: not_ready, **options)

    return make


Caller = Callable[..., AbstractAsyncContextManager[httpx.AsyncClient]]


@pytest.fixture
def calling(make_app: AppMaker) -> Caller:
    """calling(generator) -> a client of the application in this process."""

    @asynccontextmanager
    async def call(generator: ScriptedGenerator | None = None, **options: object) -> AsyncIterator[httpx.AsyncClient]:
        app = make_app(generator or ScriptedGenerator(), **options)
        async with httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://router") as client:
            yield client

    return call


Server = Callable[..., AbstractAsyncContextManager[str]]


@pytest.fixture
def serving(make_app: AppMaker) -> Server:
    """serving(generator) -> the base URL of a real server."""

    @asynccontextmanager
    async def serve(generator: ScriptedGenerator, **options: object) -> AsyncIterator[str]:
        async with await serve_http(make_app(generator, **options), "127.0.0.1", 0) as server:
            yield f"http://127.0.0.1:{server.port}"

    return serve
