"""Computes KV blocks chunk by chunk and pushes them to decode workers."""
