"""A router that asks for keys, over TLS: who may call, what tenants share, and what they may take."""

from __future__ import annotations

import ssl
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import openai
import pytest

import slipstream
from common.config import ProcessConfig
from router.access.api_key import hash_key, mint_key
from slipstream.launcher import Cluster
from tests.support.certificates import make_fleet
from tests.support.small_cluster import small_cluster_config

TIMEOUT_S = 30.0
RELOAD_TIMEOUT_S = 10.0
PROMPT = [7, 11, 13, 17] * 24  # six blocks
SHORT = [3, 5, 9, 2]  # less than a block: nothing of it is kept


@dataclass(frozen=True, slots=True)
class Keyed:
    """A cluster, the CA that its callers trust, and the keys of its tenants."""

    cluster: Cluster
    ca_dir: Path
    tenants_file: Path
    keys: dict[str, str]

    def client(self, tenant: str | None) -> slipstream.Client:
        key = None if tenant is None else self.keys[tenant]
        return slipstream.Client(self.cluster.grpc_addresses, tls_dir=str(self.ca_dir), api_key=key)

    def http(self, key: str | None) -> httpx.Client:
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        context = ssl.create_default_context(cafile=str(self.ca_dir / "ca.crt"))
        return httpx.Client(base_url=self.cluster.http_urls[0], verify=context, headers=headers, timeout=TIMEOUT_S)


def tenants_text(keys: dict[str, str], **limits: str) -> str:
    rows = {"ops": "operator = true", **limits}
    return "".join(
        f'[tenants.{name}]\nkeys = ["{hash_key(key)}"]\n{rows.get(name, "")}\n' for name, key in keys.items()
    )


@pytest.fixture(scope="module")
def keyed(tiny_model: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Keyed]:
    folder = tmp_path_factory.mktemp("keyed")
    tls_dir = make_fleet(folder / "tls")
    (folder / "ca").mkdir()
    (folder / "ca" / "ca.crt").write_bytes((tls_dir / "ca.crt").read_bytes())
    keys = {name: mint_key() for name in ("a", "b", "ops", "slow", "late")}
    tenants_file = folder / "tenants.toml"
    tenants_file.write_text(tenants_text(keys, slow="requests_per_s = 0.001"))
    process = ProcessConfig(tls_dir=str(tls_dir), log_level="debug")
    config = small_cluster_config(tiny_model, process=process, api_keys=str(tenants_file), max_local_prefill_tokens=0)
    with Cluster(config) as cluster:
        yield Keyed(cluster, folder / "ca", tenants_file, keys)


def test_a_key_is_asked_for_and_no_certificate(keyed: Keyed) -> None:
    with keyed.client("a") as client:
        assert client.generate(SHORT, max_tokens=2, ignore_eos=True).usage.generated_tokens == 2
        assert client.models()[0].id == "tiny"
    for key in (None, "slipstream-wrong"):
        with (
            slipstream.Client(keyed.cluster.grpc_addresses, tls_dir=str(keyed.ca_dir), api_key=key) as client,
        ):
            with pytest.raises(slipstream.UnauthenticatedError, match="key"):
                client.generate(SHORT, max_tokens=2)
            with pytest.raises(slipstream.UnauthenticatedError, match="key"):
                client.status()


async def test_the_asynchronous_client_sends_its_key(keyed: Keyed) -> None:
    targets, ca_dir = keyed.cluster.grpc_addresses, str(keyed.ca_dir)
    async with slipstream.AsyncClient(targets, tls_dir=ca_dir, api_key=keyed.keys["a"]) as client:
        assert (await client.models())[0].id == "tiny"
        assert (await client.generate(SHORT, max_tokens=1)).usage.generated_tokens == 1
    async with slipstream.AsyncClient(targets, tls_dir=ca_dir) as client:
        with pytest.raises(slipstream.UnauthenticatedError):
            await client.models()


def test_the_fleet_is_for_operators(keyed: Keyed) -> None:
    with keyed.client("a") as client, pytest.raises(slipstream.PermissionDeniedError, match="operator = true"):
        client.reset_prefix_cache()
    with keyed.client("ops") as client:
        assert len(client.status().workers) == 2


def test_http_asks_for_the_key_before_it_reads_the_body(keyed: Keyed) -> None:
    asked = {"model": "tiny", "prompt": SHORT, "max_tokens": 2, "ignore_eos": True}
    statuses = {}
    for name, key in {"none": None, "wrong": "slipstream-wrong", **keyed.keys}.items():
        if name in ("slow", "late"):
            continue
        with keyed.http(key) as client:
            paths = ("/v1/models", "/metrics", "/health", "/ready")
            statuses[name] = (
                client.post("/v1/completions", json=asked).status_code,
                *(client.get(path).status_code for path in paths),
            )
    assert statuses == {
        "none": (401, 401, 401, 200, 200),
        "wrong": (401, 401, 401, 200, 200),
        "a": (200, 200, 403, 200, 200),
        "b": (200, 200, 403, 200, 200),
        "ops": (200, 200, 200, 200, 200),
    }
    with keyed.http(None) as client:
        refused = client.post("/v1/completions", content=b"no JSON")
    assert refused.status_code == 401
    assert refused.headers["www-authenticate"] == "Bearer"
    assert refused.json()["error"]["code"] == "invalid_api_key"


def test_the_openai_package_works_with_its_key(keyed: Keyed) -> None:
    context = ssl.create_default_context(cafile=str(keyed.ca_dir / "ca.crt"))
    for key, works in ((keyed.keys["a"], True), ("wrong", False)):
        client = openai.OpenAI(
            base_url=f"{keyed.cluster.http_urls[0]}/v1", api_key=key, http_client=httpx.Client(verify=context)
        )
        with client:
            if works:
                answer = client.completions.create(model="tiny", prompt="Hello", max_tokens=2)
                assert answer.usage is not None and answer.usage.completion_tokens == 2
            else:
                with pytest.raises(openai.AuthenticationError):
                    client.models.list()


def cached_tokens(keyed: Keyed, tenant: str, prompt: list[int], cache_salt: str = "") -> int:
    with keyed.client(tenant) as client:
        return client.generate(prompt, max_tokens=2, ignore_eos=True, cache_salt=cache_salt).usage.cached_tokens


def test_tenants_share_no_cache(keyed: Keyed) -> None:
    assert cached_tokens(keyed, "a", PROMPT) == 0
    assert cached_tokens(keyed, "a", PROMPT) > 0
    assert cached_tokens(keyed, "b", PROMPT) == 0, "b must not learn what a has asked"
    assert cached_tokens(keyed, "b", PROMPT) > 0


@pytest.mark.parametrize("salt", ["a", "b", "\x01\x00\x00\x00a", "a\x00\x00\x00\x00"])
def test_a_client_s_salt_only_divides_its_tenant(keyed: Keyed, salt: str) -> None:
    prompt = [ord(letter) for letter in salt] + PROMPT
    assert cached_tokens(keyed, "a", prompt) == 0
    assert cached_tokens(keyed, "b", prompt, cache_salt=salt) == 0
    assert cached_tokens(keyed, "a", prompt, cache_salt=salt) == 0
    assert cached_tokens(keyed, "a", prompt) > 0


def test_who_has_reached_a_limit_is_told_when_to_come_again(keyed: Keyed) -> None:
    with keyed.client("slow") as client:
        client.generate(SHORT, max_tokens=1)
        with pytest.raises(slipstream.OverloadedError, match=r"limit of 0\.001 requests per second") as caught:
            client.generate(SHORT, max_tokens=1)
    assert 900 < caught.value.retry_after_s <= 1000
    with keyed.http(keyed.keys["slow"]) as http:
        refused = http.post("/v1/completions", content=b"whatever it is, it is not read")
    assert refused.status_code == 429 and 900 < int(refused.headers["retry-after"]) <= 1000
    with keyed.http(keyed.keys["ops"]) as http:
        metrics = http.get("/metrics").text
    assert 'slipstream_tenant_requests_total{outcome="resource_exhausted",tenant="slow"} 1.0' in metrics
    assert 'slipstream_tenant_tokens_total{tenant="slow"} 5.0' in metrics  # four of the prompt, one generated
    with keyed.client("a") as client:  # and nobody else
        client.generate(SHORT, max_tokens=1)


def test_a_withdrawn_key_ends_without_a_restart(keyed: Keyed) -> None:
    remaining = {name: key for name, key in keyed.keys.items() if name != "late"}
    with keyed.client("late") as client:
        assert client.models()
        keyed.tenants_file.write_text(tenants_text(remaining, slow="requests_per_s = 0.001"))
        deadline_s = time.monotonic() + RELOAD_TIMEOUT_S
        with pytest.raises(slipstream.UnauthenticatedError):
            while time.monotonic() < deadline_s:
                client.models()
                time.sleep(0.1)
    with keyed.client("a") as client:
        assert client.models()


def test_commands_take_a_key_from_the_environment(keyed: Keyed) -> None:
    command = [sys.executable, "-m", "slipstream", "status", "--target", keyed.cluster.grpc_addresses[0]]
    command += ["--tls-dir", str(keyed.ca_dir)]
    outputs = {}
    for tenant in ("ops", "a"):
        environment = {"PYTHONPATH": ":".join(sys.path), "SLIPSTREAM_API_KEY": keyed.keys[tenant]}
        outputs[tenant] = subprocess.run(command, capture_output=True, text=True, timeout=60, env=environment)
    assert outputs["ops"].returncode == 0 and "decode-0" in outputs["ops"].stdout, outputs["ops"].stderr
    assert outputs["a"].returncode == 1 and "operator = true" in outputs["a"].stderr


def test_keys_are_in_no_log_and_on_no_command_line(keyed: Keyed) -> None:
    logs = "".join(path.read_text(errors="replace") for path in keyed.cluster.log_dir.iterdir())
    assert logs and not [name for name, key in keyed.keys.items() if key in logs]
