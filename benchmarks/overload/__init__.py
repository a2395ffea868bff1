"""Ten times the sustainable rate: what is still answered in time, what a refusal costs, and what grows."""
