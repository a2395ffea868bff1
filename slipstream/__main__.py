"""`python -m slipstream` is the command `slipstream`."""

from slipstream.cli import main

main()
