"""Logs of every process, in one shape."""
