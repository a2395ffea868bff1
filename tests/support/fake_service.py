"""Stands in for `python -m slipstream` in tests of the launcher: serves nothing, says what a service says.

FAKE_SERVICE in the environment is a JSON object {name: behaviour}: die, exit2, mute, unready, stubborn.
"""

from __future__ import annotations

import http.server
import json
import os
import signal
import sys
import time


def main() -> None:
    command, *flags = sys.argv[1:]
    options = dict(zip(flags[::2], flags[1::2], strict=True))
    name = options.get("--worker-id") or options["--router-id"]
    behaviour = json.loads(os.environ.get("FAKE_SERVICE", "{}")).get(name, "")
    signal.signal(signal.SIGTERM, signal.SIG_IGN if behaviour == "stubborn" else lambda *_: sys.exit(0))
    sys.stderr.write(f"{name} has begun\n")
    if behaviour in ("die", "exit2"):
        sys.stderr.write("kv_memory: does not fit\n")
        sys.exit(2 if behaviour == "exit2" else 3)
    if behaviour == "mute":
        time.sleep(60)
    if command == "router":
        serve_readiness(name, ready=behaviour != "unready")
    role = options.get("--role", command)
    print("READY " + json.dumps({"worker_id": name, "role": role, "address": "127.0.0.1:1"}), flush=True)
    while True:
        time.sleep(60)


def serve_readiness(name: str, *, ready: bool) -> None:
    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200 if ready else 503)
            self.end_headers()
            self.wfile.write(b"no token yet" if not ready else b"")

    server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
    url = f"http://127.0.0.1:{server.server_port}"
    print("READY " + json.dumps({"router_id": name, "grpc_address": "127.0.0.1:2", "http_url": url}), flush=True)
    server.serve_forever()


if __name__ == "__main__":
    main()
