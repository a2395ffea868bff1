"""What no module that is shipped may do: run code that came as data, listen and call without limits, or lose a
cancellation. And how long any module and function of the repository may be."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PACKAGES = ("common", "router", "prefill_worker", "decode_worker", "slipstream", "protos")
# Each of these modules unpickles what it is given, or hands it to who does.
UNPICKLING_MODULES = {
    "pickle", "_pickle", "cPickle", "dill", "cloudpickle", "joblib", "shelve", "marshal", "copyreg",
    "multiprocessing", "torch.multiprocessing",
}  # fmt: skip
# torch.distributed's collectives over Python objects pickle them.
UNPICKLING_NAMES = {
    "read_pickle", "broadcast_object_list", "all_gather_object", "gather_object", "scatter_object_list",
    "send_object_list", "recv_object_list", "ProcessPoolExecutor",
}  # fmt: skip
CHANNELS_AND_SERVERS = {"insecure_channel", "secure_channel", "server"}
# CONTRIBUTING.md says them too.
MAX_FILE_LINES = 400
MAX_FUNCTION_LINES = 60


def modules() -> list[Path]:
    return [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]


def written_files() -> list[Path]:
    """Every module of the repository but generated ones."""
    found = [
        *ROOT.glob("*.py"),
        *(path for folder in (*PACKAGES, "benchmarks", "tests") for path in (ROOT / folder).rglob("*.py")),
    ]
    return [path for path in found if "_pb2" not in path.name]


def dotted(node: ast.expr) -> str:
    """`a.b.c` of an attribute or a name; empty for other expressions."""
    if isinstance(node, ast.Attribute):
        return f"{dotted(node.value)}.{node.attr}"
    return node.id if isinstance(node, ast.Name) else ""


def violations(source: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (f"import {one.name}" for one in node.names if is_unpickling(one.name))
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{one.name}" for one in node.names]
            yield from (f"from {name}" for name in names if is_unpickling(name) or is_unpickling(node.module or ""))
            yield from (f"from {name}" for name in names if name.rpartition(".")[2] in UNPICKLING_NAMES)
        elif isinstance(node, ast.Attribute) and node.attr in UNPICKLING_NAMES:
            yield node.attr
        elif isinstance(node, ast.Call):
            yield from call_violations(node)


def is_unpickling(module: str) -> bool:
    return any(module == one or module.startswith(f"{one}.") for one in UNPICKLING_MODULES)


def call_violations(call: ast.Call) -> Iterator[str]:
    name = dotted(call.func)
    keywords = {one.arg: one.value for one in call.keywords}
    if name in ("eval", "exec"):
        yield f"{name}()"
    if name.endswith(("torch.load", "serialization.load")) and not is_true(keywords.get("weights_only")):
        yield f"{name}() without weights_only=True"
    if is_true(keywords.get("allow_pickle")):
        yield f"{name}(allow_pickle=True)"
    if is_true(keywords.get("trust_remote_code")):
        yield f"{name}(trust_remote_code=True)"
    if name == "asyncio.wait_for":
        yield f"{name}() loses a cancellation that comes as its awaitable ends (Python 3.11): use asyncio.timeout()"
    root, _, last = name.rpartition(".")
    has_options = "options" in keywords or len(call.args) >= (3 if last == "secure_channel" else 2)
    if root in ("grpc", "grpc.aio") and last in CHANNELS_AND_SERVERS and not has_options:
        yield f"{name}() without options: nothing bounds its messages"


def oversizes(source: str) -> Iterator[str]:
    num_lines = len(source.splitlines())
    if num_lines > MAX_FILE_LINES:
        yield f"{num_lines} lines"
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            num_lines = node.end_lineno - node.lineno + 1
            if num_lines > MAX_FUNCTION_LINES:
                yield f"{node.name}() has {num_lines} lines"


def is_true(node: ast.expr | None) -> bool:
    return isinstance(node, ast.Constant) and node.value is True


def test_no_shipped_module_breaks_a_rule() -> None:
    found = {str(path.relative_to(ROOT)): list(violations(path.read_text())) for path in modules()}
    assert len(found) > 200
    assert {path: rules for path, rules in found.items() if rules} == {}


def test_no_file_and_no_function_is_too_long() -> None:
    found = {str(path.relative_to(ROOT)): list(oversizes(path.read_text())) for path in written_files()}
    assert len(found) > 600
    assert {path: sizes for path, sizes in found.items() if sizes} == {}


def test_what_is_too_long_is_found() -> None:
    assert not list(oversizes("def f():\n" + "    pass\n" * 59 + "pass\n" * 340))
    assert list(oversizes("pass\n" * 401)) == ["401 lines"]
    assert list(oversizes("class C:\n  async def f():\n" + "    pass\n" * 60)) == ["f() has 61 lines"]


@pytest.mark.parametrize(
    "source",
    [
        "import pickle",
        "import torch.multiprocessing as mp",
        "from multiprocessing import Pipe",
        "from multiprocessing.connection import Client",
        "from concurrent.futures import ProcessPoolExecutor",
        "torch.load(path)",
        "torch.load(path, weights_only=False)",
        "np.load(path, allow_pickle=True)",
        "dist.broadcast_object_list(values)",
        "AutoModel.from_pretrained(name, trust_remote_code=True)",
        "eval(text)",
        "grpc.insecure_channel(address)",
        "grpc.aio.secure_channel(address, credentials)",
        "grpc.aio.server()",
        "await asyncio.wait_for(event.wait(), 1)",
    ],
)
def test_a_broken_rule_is_found(source: str) -> None:
    assert list(violations(source))


@pytest.mark.parametrize(
    "source",
    [
        "import json",
        "torch.load(path, weights_only=True)",
        "np.load(path)",
        "model.eval()",
        "grpc.insecure_channel(address, OPTIONS)",
        "grpc.aio.server(options=OPTIONS)",
    ],
)
def test_what_is_allowed_is_not(source: str) -> None:
    assert not list(violations(source))
