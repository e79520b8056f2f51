"""Run `python -m lanebus.handlers.cli`, the same as the console script `lanebus`."""

from lanebus.handlers.cli import main

main()
