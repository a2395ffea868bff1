"""Servers as contenders, and the load that they are put under."""
