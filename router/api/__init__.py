"""The router's gRPC services: decode, call the core, encode."""
