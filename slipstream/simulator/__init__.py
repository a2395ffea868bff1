"""A simulated fleet that replays traffic through the router's real planning code.

Owns modelled workers, clocks and traces. The books about workers, the plan and the policies are `router.planning` and
`router.policy` themselves. Knows no network, no torch, no real time.
"""
