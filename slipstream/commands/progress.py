"""Shows on a terminal how a cluster comes up, and how its processes end."""

from __future__ import annotations

from rich.console import Console
from rich.markup import escape

from slipstream.child import Child
from slipstream.launcher import ClusterEvent


class StartProgress:
    """Lines on standard error, with a spinner under them when it is a terminal."""

    def __init__(self) -> None:
        self._console = Console(stderr=True, highlight=False)
        self._status = self._console.status("starting")

    def __enter__(self) -> StartProgress:
        self._status.start()
        return self

    def __exit__(self, *exception: object) -> None:
        self.done()

    def done(self) -> None:
        """Everything runs: takes the spinner away. Idempotent."""
        self._status.stop()

    def show(self, event: ClusterEvent) -> None:
        line = f"  {event.name:<12} {escape(event.text)}  [dim]{event.elapsed_s:.1f} s[/dim]"
        self._console.print(line, soft_wrap=True)


def describe_end(child: Child) -> str:
    """What to say when a process ended on its own."""
    return f"{child.name} {child.ending()}; the end of its log {child.log_path}:\n{child.log_tail()}"
