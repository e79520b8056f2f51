"""Run the console script `lanebus` as `python -m lanebus`."""

from lanebus.handlers.cli import main

main()
