"""A TCP proxy that forgets its connections as a NAT does: nothing is forwarded any more, and nobody is told."""

from __future__ import annotations

import socket
import threading
from contextlib import suppress


class ForgetfulProxy:
    """Forwards to one address. `forget` affects the connections that there are; later ones are forwarded."""

    def __init__(self, target: str) -> None:
        host, _, port = target.rpartition(":")
        self._target = host, int(port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.address = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self.num_connections = 0
        self.num_bytes = 0
        self._sockets: list[socket.socket] = []
        self._generation = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def forget(self) -> None:
        self._generation += 1

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        for one in (self._listener, *self._sockets):
            one.close()

    def _accept(self) -> None:
        with suppress(OSError):
            while True:
                caller, _ = self._listener.accept()
                callee = socket.create_connection(self._target)
                self.num_connections += 1
                self._sockets += [caller, callee]
                for source, sink in ((caller, callee), (callee, caller)):
                    threading.Thread(target=self._forward, args=(source, sink, self._generation), daemon=True).start()

    def _forward(self, source: socket.socket, sink: socket.socket, generation: int) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if generation == self._generation:
                    self.num_bytes += len(data)
                    sink.sendall(data)
            if generation == self._generation:
                sink.shutdown(socket.SHUT_WR)
