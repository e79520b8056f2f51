"""`python -m handlers.cli`: the same as the console script `lanebus`."""

from handlers.cli import main

__all__ = ()

main()
