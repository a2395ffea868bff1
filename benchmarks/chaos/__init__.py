"""Breaks a running fleet in every way and at every stage of a request, and judges what its callers saw."""
