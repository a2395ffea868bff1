"""Generates the Python code of the .proto files beside this one: `python protos/generate.py [--check]`.

With --check nothing is written; exit code 1 when the committed code is not what would be generated.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from pathlib import Path

from grpc_tools import protoc

PROTOS = Path(__file__).resolve().parent
ROOT = PROTOS.parent


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--check", action="store_true", help="write nothing, fail on a difference")
    if not parser.parse_args().check:
        generate(ROOT)
        return 0
    stale = stale_files()
    for name in stale:
        sys.stderr.write(f"{name} is not what its .proto says: run `make protos`\n")
    return 1 if stale else 0


def generate(target: Path) -> None:
    """Writes the code under `target`/protos. Imports in it read `from protos import …`."""
    sources = sorted(str(path.relative_to(ROOT)) for path in PROTOS.glob("*.proto"))
    outputs = [f"--{kind}_out={target}" for kind in ("python", "pyi", "grpc_python")]
    if protoc.main(["protoc", f"-I{ROOT}", *outputs, *(str(ROOT / source) for source in sources)]) != 0:
        sys.exit("protoc failed")


def stale_files() -> list[str]:
    """Generated files that are missing, differ, or have lost their .proto."""
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        fresh = {path.name: path.read_text() for path in (Path(folder) / "protos").iterdir()}
    committed = {path.name: path.read_text() for path in PROTOS.glob("*_pb2*.py*")}
    return sorted(f"protos/{name}" for name in fresh | committed if fresh.get(name) != committed.get(name))


if __name__ == "__main__":
    sys.exit(main())
