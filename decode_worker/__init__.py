"""Receives KV blocks and decodes in a continuous batch; in role `both` it prefills too."""
