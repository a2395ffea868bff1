"""The same work on this engine and on its peers, side by side: medians, ratios, and the machine's own limits."""
