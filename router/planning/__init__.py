"""Where a request goes: the router's books about workers, and the plan that they and a policy give.

Pure: no connection, no clock of its own, no event loop. The simulator drives the same code.
"""
