"""How fast a fleet frees what a caller held who went away, in each stage of a request and by each way of leaving."""
