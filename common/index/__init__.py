"""The global prefix index and the fleet's membership, in Redis or Valkey: written by workers, read by routers.

docs/index.md has the schema. Knows neither models nor wire messages; keys and payloads are opaque bytes.
"""
