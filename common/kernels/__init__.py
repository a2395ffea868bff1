"""Hot operations, one per file, each with a textbook twin in `reference.py`."""
