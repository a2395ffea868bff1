"""`make bench-routing`: policies replayed on real traces, and on real processes."""
