"""The shell that every worker process shares: engine thread, streams of routers, registration, life cycle."""
