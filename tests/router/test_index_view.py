"""The index as a router reads it: depths of the workers' lives that it is attached to, and of no earlier ones."""

from __future__ import annotations

import dataclasses

import pytest

from common.config import IndexConfig, Role
from common.index.client import IndexClient
from common.index.points import IndexSpace
from common.kv.block_key import BlockKey
from common.request import WorkerId
from router.index_view import IndexView
from router.prefix_lookup import PrefixDepths
from tests.support.fleet_books import account, roster
from tests.support.router import worker_info
from tests.support.valkey import fast_publisher, point_keys, running_server, settled, stored, worker_ref

pytestmark = pytest.mark.asyncio


async def test_only_the_life_that_is_attached_counts() -> None:
    attached = account("p0")
    books = roster(attached)
    with running_server() as server:
        config = IndexConfig(index_url=server.url, index_stride=64)
        view, client = IndexView(config, books), IndexClient.from_url(server.url)
        space = IndexSpace(namespace=config.namespace, index_stride=64, num_shards=client.num_shards)
        publisher, stranger = (
            fast_publisher(client, space, worker_ref("p0", 1)),
            fast_publisher(client, space, worker_ref("unknown", 1)),
        )
        keys = [BlockKey(key) for key in point_keys(5)]
        for one in (publisher, stranger):
            one.start()
            one.publish(stored(keys[:3]))
        await settled(publisher, stranger)

        info = worker_info("p0", Role.PREFILL)
        held = await view.depths(info, keys)
        assert held == PrefixDepths(held={WorkerId("p0"): 3}, expected={WorkerId("p0"): 3})
        await view.speculate(info, keys[3:], 3, 10.0)
        assert (await view.depths(info, keys)).expected == {WorkerId("p0"): 5}

        attached.info = dataclasses.replace(attached.info, incarnation=2)  # it came back, and the index lags
        assert await view.depths(info, keys) == PrefixDepths()
        for one in (publisher, stranger):
            await one.stop()
        await client.close()
        await view.close()
