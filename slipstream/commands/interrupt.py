"""One way to stop a command in order, whoever asks."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import contextmanager
from types import FrameType


@contextmanager
def sigterm_as_interrupt() -> Iterator[None]:
    """SIGTERM stops as Ctrl-C does: through the exits of all context managers.

    SIGINT does too where the command was started with it ignored: a shell does that to what a script puts in the
    background, and then `kill -INT` would be in vain.
    """

    def interrupt(signum: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    terminate = signal.signal(signal.SIGTERM, interrupt)
    interrupted = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, terminate)
        signal.signal(signal.SIGINT, interrupted)
