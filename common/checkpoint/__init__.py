"""Where a model's files are, and how they get there. No torch: routers import this too."""

from common.checkpoint.resolve import resolve_model, served_name

__all__ = ["resolve_model", "served_name"]
