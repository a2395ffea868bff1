"""Moves KV blocks between workers. The control messages are the same for every transport."""
