"""Who may call a router, and how much: API keys, tenants, limits."""
