"""Token-exactness of the served system against transformers' own generate."""
