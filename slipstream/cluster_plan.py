"""The command line, environment and cores of each process of a cluster on one machine. Starts nothing."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import slipstream
from common.config import EngineConfig, IndexConfig, Role, RouterConfig, WorkerConfig
from slipstream.child import ChildCommand
from slipstream.cluster_config import ClusterConfig
from slipstream.cores import WORKER_ENVIRONMENT, CoreShare, divide_cores
from slipstream.settings import CONFIG_VARIABLE, command_line, setting_variables

INDEX_VARIABLE = "SLIPSTREAM_INDEX_URL"


class ClusterPlan:
    """Pure: from a config, the index's address and the cores there are to the commands to run."""

    def __init__(self, config: ClusterConfig, index_url: str, cores: Sequence[int]) -> None:
        self._config = config
        self._index: IndexConfig = replace(config.index, index_url=index_url)
        self._index_url = index_url
        self._shares = divide_cores(cores, config.num_workers)

    def commands(self, program: Sequence[str], environment: Mapping[str, str]) -> Iterator[ChildCommand]:
        """Workers first: they take longest. `program` runs a service's command line."""
        # A URL may hold a password, and everyone on the machine can read command lines.
        environment = {**_child_environment(environment), INDEX_VARIABLE: self._index_url}
        for (role, name), share in zip(self._worker_names(), self._shares, strict=True):
            command = "prefill" if role is Role.PREFILL else "decode"
            yield ChildCommand(
                name=name,
                arguments=(*program, *command_line(command, self._worker(role, name, share), leave_out=("index_url",))),
                environment={**WORKER_ENVIRONMENT, **environment, "OMP_NUM_THREADS": str(self._threads(role, share))},
                cores=share.cores,
            )
        for index in range(self._config.routers):
            router = self._router(index)
            assert router.router_id is not None
            yield ChildCommand(
                name=router.router_id,
                arguments=(*program, *command_line("router", router, leave_out=("index_url",))),
                environment=environment,
            )

    def _worker_names(self) -> Iterator[tuple[Role, str]]:
        decode_role = self._config.role or Role.DECODE
        if decode_role is not Role.BOTH:
            for index in range(self._config.prefill):
                yield Role.PREFILL, f"prefill-{index}"
        for index in range(self._config.decode):
            yield decode_role, f"{decode_role}-{index}"

    def _worker(self, role: Role, name: str, share: CoreShare) -> WorkerConfig:
        engine = self._engine(role)
        return WorkerConfig(
            # Workers load at the same time and each sees the whole memory as free.
            engine=replace(
                engine,
                num_threads=self._threads(role, share),
                kv_memory_share=engine.kv_memory_share / self._config.num_workers,
            ),
            index=self._index,
            transfer=self._config.transfer,
            process=self._config.process,
            role=role,
            worker_id=name,
            lease_s=self._config.lease_s,
        )

    def _engine(self, role: Role) -> EngineConfig:
        other = self._config.prefill_engine if role is Role.PREFILL else self._config.decode_engine
        return other or self._config.engine

    def _threads(self, role: Role, share: CoreShare) -> int:
        return self._engine(role).num_threads or share.num_threads

    def _router(self, index: int) -> RouterConfig:
        config = self._config
        return RouterConfig(
            index=self._index,
            process=config.process,
            model=config.engine.model,
            served_model_name=config.engine.served_model_name,
            router_id=f"router-{index}",
            host=config.host,
            grpc_port=config.grpc_port and config.grpc_port + index,
            http_port=config.http_port and config.http_port + index,
            min_workers=config.num_workers,
            policy=config.policy,
            max_local_prefill_tokens=config.max_local_prefill_tokens,
            api_keys=config.api_keys,
            probe_interval_s=config.probe_interval_s,
            drain_timeout_s=config.router_drain_timeout_s,
        )


def _child_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """The launcher's environment without settings: they were resolved, and each child gets its own as flags."""
    settings = setting_variables() | {CONFIG_VARIABLE}
    root = str(Path(slipstream.__file__).parent.parent)
    paths = [root, *filter(None, environment.get("PYTHONPATH", "").split(":"))]
    kept = {name: value for name, value in environment.items() if name not in settings}
    # The children run the code that the launcher runs, wherever it was started from.
    return {**kept, "PYTHONPATH": ":".join(paths), "PYTHONUNBUFFERED": "1"}
