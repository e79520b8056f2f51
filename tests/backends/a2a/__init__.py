"""The tasks of A2A servers on lanebus."""
