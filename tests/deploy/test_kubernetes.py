"""deploy/kubernetes.yaml starts commands that take what they are given, and asks them what they answer."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any
from urllib.parse import urlsplit

import pytest

from common.config import RouterConfig, WorkerConfig
from protos import worker_pb2
from slipstream.settings import unknown_variables
from tests.support.command_config import config_of, flat
from tests.support.deployed import KNOWN_VARIABLES, manifests

POD_IP = "10.1.2.3"
# After a drain: what is cut off has 2 s to leave, gRPC 5 s to end, and the index must be told.
STOPPING_S = 10
ROLES = ("router", "prefill", "decode")
REGISTRATION = worker_pb2.DESCRIPTOR.services_by_name["Registration"].full_name


def named(kind: str, name: str) -> dict[str, Any]:
    (found,) = (one for one in manifests() if (one["kind"], one["metadata"]["name"]) == (kind, name))
    return found


def pod(role: str) -> dict[str, Any]:
    found: dict[str, Any] = named("Deployment", f"slipstream-{role}")["spec"]["template"]["spec"]
    return found


def container(role: str) -> dict[str, Any]:
    (found,) = pod(role)["containers"]
    return found


def environment(role: str) -> dict[str, str]:
    """The variables of a container, as a node would set them."""
    found: dict[str, str] = {}
    for source in container(role).get("envFrom", ()):
        found |= named("ConfigMap", source["configMapRef"]["name"])["data"]
    for entry in container(role).get("env", ()):
        found[entry["name"]] = entry["value"] if "value" in entry else provided(role, entry["valueFrom"])
    return found


def provided(role: str, source: Mapping[str, Any]) -> str:
    if "fieldRef" in source:
        assert source["fieldRef"]["fieldPath"] == "status.podIP"
        return POD_IP
    kind, _, resource = source["resourceFieldRef"]["resource"].partition(".")
    return str(container(role)["resources"][kind][resource])


def config(role: str) -> Any:
    arguments = [argument.replace("$(POD_IP)", POD_IP) for argument in container(role)["args"]]
    assert arguments[0] == role
    return config_of(arguments, environment(role))


def port(role: str, probe: Mapping[str, Any]) -> int:
    """The number of a probe's port."""
    numbers = {entry["name"]: entry["containerPort"] for entry in container(role)["ports"]}
    asked = probe["port"]
    number = numbers.get(asked, asked)
    assert isinstance(number, int)
    return number


def probes(role: str, kind: str) -> dict[str, Mapping[str, Any]]:
    return {name: container(role)[name][kind] for name in ("startupProbe", "livenessProbe", "readinessProbe")}


@pytest.mark.parametrize("role", ROLES)
def test_every_variable_is_a_setting(role: str) -> None:
    variables = environment(role)
    assert variables.keys() - KNOWN_VARIABLES <= {"POD_IP"}
    assert unknown_variables(variables) == []
    assert pod(role)["enableServiceLinks"] is False


def test_the_router_listens_where_it_is_asked() -> None:
    router = config("router")
    assert isinstance(router, RouterConfig)
    assert router.host == "0.0.0.0"
    asked = probes("router", "httpGet")
    assert {name: probe["path"] for name, probe in asked.items()} == {
        "startupProbe": "/health",
        "livenessProbe": "/health",
        "readinessProbe": "/ready",
    }
    assert {port("router", probe) for probe in asked.values()} == {router.http_port}
    declared = {entry["name"]: entry["containerPort"] for entry in container("router")["ports"]}
    assert declared == {"grpc": router.grpc_port, "http": router.http_port}
    annotations = named("Deployment", "slipstream-router")["spec"]["template"]["metadata"]["annotations"]
    assert annotations["prometheus.io/port"] == str(router.http_port)


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_workers_listen_where_they_are_asked_and_say_where_they_are(role: str) -> None:
    worker = config(role)
    assert isinstance(worker, WorkerConfig)
    assert worker.role == role
    assert (worker.host, worker.advertise) == ("0.0.0.0", f"{POD_IP}:{worker.port}")
    asked = probes(role, "grpc")
    assert {port(role, probe) for probe in asked.values()} == {worker.port}
    assert asked["livenessProbe"].get("service", "") == "", "which is the process's health"
    assert asked["readinessProbe"]["service"] == REGISTRATION, "which is ready when its worker is"


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_a_worker_has_as_many_threads_as_cpus(role: str) -> None:
    assert str(config(role).engine.num_threads) == container(role)["resources"]["limits"]["cpu"]


@pytest.mark.parametrize("role", ["prefill", "decode"])
def test_shared_memory_is_larger_than_a_container_s_own(role: str) -> None:
    directory = config(role).transfer.shm_directory
    (mount,) = (mount for mount in container(role)["volumeMounts"] if mount["mountPath"] == directory)
    (volume,) = (volume for volume in pod(role)["volumes"] if volume["name"] == mount["name"])
    assert volume["emptyDir"]["medium"] == "Memory"
    assert "shm" not in config(role).transfer.kv_transports, "each pod has a directory of its own"


@pytest.mark.parametrize("role", ROLES)
def test_a_pod_may_drain_to_the_end(role: str) -> None:
    before = container(role).get("lifecycle", {}).get("preStop", {}).get("exec", {}).get("command", ["sleep", "0"])
    assert before[0] == "sleep"
    needed_s = float(before[1]) + config(role).drain_timeout_s + STOPPING_S
    assert pod(role)["terminationGracePeriodSeconds"] >= needed_s


@pytest.mark.parametrize("role", ROLES)
def test_the_model_is_on_a_volume(role: str) -> None:
    model = flat(config(role))["model"]
    (mount,) = (mount for mount in container(role)["volumeMounts"] if model.startswith(f"{mount['mountPath']}/"))
    assert mount["name"] in {volume["name"] for volume in pod(role)["volumes"]}


def test_the_index_is_where_everybody_looks_for_it() -> None:
    (address,) = {urlsplit(config(role).index.index_url) for role in ROLES}
    assert address.hostname is not None
    (entry,) = named("Service", address.hostname)["spec"]["ports"]
    assert entry["port"] == address.port
    arguments = container("index")["args"]
    options = dict(zip(arguments[1::2], arguments[2::2], strict=True))
    assert port("index", {"port": entry["targetPort"]}) == int(options["--port"])
    assert options["--maxmemory-policy"] == "noeviction"


def test_services_and_the_policy_choose_pods_that_there_are() -> None:
    labels = {
        one["metadata"]["name"]: one["spec"]["template"]["metadata"]["labels"]
        for one in manifests()
        if one["kind"] == "Deployment"
    }
    for one in manifests():
        if one["kind"] == "Deployment":
            assert one["spec"]["selector"]["matchLabels"] == labels[one["metadata"]["name"]]
        if one["kind"] == "Service":
            assert one["spec"]["selector"] == labels[one["metadata"]["name"]]
            declared = {entry["name"] for entry in container(one["metadata"]["name"].partition("-")[2])["ports"]}
            assert {entry["targetPort"] for entry in one["spec"]["ports"]} <= declared
    (policy,) = (one for one in manifests() if one["kind"] == "NetworkPolicy")
    (expression,) = policy["spec"]["podSelector"]["matchExpressions"]
    inside = {found[expression["key"]] for found in labels.values()} - {"router"}
    assert set(expression["values"]) == inside


def test_the_router_waits_for_every_worker_that_is_started_with_it() -> None:
    replicas = [named("Deployment", f"slipstream-{role}")["spec"]["replicas"] for role in ("prefill", "decode")]
    assert config("router").min_workers == sum(replicas)
