"""A fleet's life on one prefix index: `python -m benchmarks.index_soak`."""
