"""`python -m lanebus`: the same as the console script `lanebus`."""

from lanebus.handlers.cli import main

main()
