"""Accepts requests, plans where they run, conducts their legs and retries. Never imports torch."""
