"""How fast KV blocks move between two processes by each transport, against a plain socket in the same run."""
