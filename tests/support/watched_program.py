"""Runs a service's command line, and writes the names of its loaded modules to a file again and again.

A test reads what a running process has imported; a thread does it, so that the process's own loop is left alone.
"""

from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

FOLDER_VARIABLE = "TEST_MODULES_FOLDER"
INTERVAL_S = 0.2


def modules_path(folder: Path, pid: int) -> Path:
    return folder / f"{pid}.json"


def _write_modules(folder: Path) -> None:
    path = modules_path(folder, os.getpid())
    while True:
        names = sorted(name for name, module in list(sys.modules.items()) if module is not None)
        unfinished = path.with_suffix(".new")
        unfinished.write_text(json.dumps({"time_s": time.time(), "modules": names}))
        unfinished.replace(path)
        time.sleep(INTERVAL_S)


if __name__ == "__main__":
    sys.path.pop(0)  # this script's folder, whose modules are not the program's
    threading.Thread(target=_write_modules, args=(Path(os.environ[FOLDER_VARIABLE]),), daemon=True).start()
    from slipstream.cli import main

    main()
