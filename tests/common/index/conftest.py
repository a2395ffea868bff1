from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Iterator

import pytest

from common.index.client import IndexClient
from common.index.lookup import IndexLookup
from common.index.points import IndexSpace
from common.index.server import EmbeddedIndexServer
from tests.support.valkey import STRIDE, running_server


@pytest.fixture(scope="session")
def index_server() -> Iterator[EmbeddedIndexServer]:
    """Shared; a test keeps to its own namespace and leaves the server alive."""
    with running_server() as server:
        yield server


@pytest.fixture
def own_server() -> Iterator[EmbeddedIndexServer]:
    """For tests that hurt the server."""
    with running_server() as server:
        yield server


@pytest.fixture
async def client(index_server: EmbeddedIndexServer) -> AsyncIterator[IndexClient]:
    client = IndexClient.from_url(index_server.url)
    yield client
    await client.close()


@pytest.fixture
async def own_client(own_server: EmbeddedIndexServer) -> AsyncIterator[IndexClient]:
    client = IndexClient.from_url(own_server.url, timeout_s=0.5)
    yield client
    await client.close()


@pytest.fixture(params=[1, 3], ids=["one shard", "three shards"])
def space(request: pytest.FixtureRequest) -> IndexSpace:
    return IndexSpace(namespace=uuid.uuid4().hex, index_stride=STRIDE, num_shards=request.param)


@pytest.fixture
async def lookup(client: IndexClient, space: IndexSpace) -> AsyncIterator[IndexLookup]:
    """With a deadline that a busy test machine keeps."""
    lookup = IndexLookup(client, space, deadline_s=2.0)
    lookup.start()
    yield lookup
    await lookup.stop()
