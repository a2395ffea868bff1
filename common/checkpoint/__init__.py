"""Where a model's files are, and how they get there. No torch: routers import this too."""
