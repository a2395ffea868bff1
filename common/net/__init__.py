"""gRPC servers and channels, and the translation between wire messages and the domain. Knows no torch."""
