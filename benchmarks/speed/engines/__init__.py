"""Engines as child processes, each in its own environment: `python -m benchmarks.speed.engines NAME`.

What is here runs in peers' environments: beside the peer itself it imports the standard library and its siblings.
"""
