"""Benchmarks: ratios of lanebus to plain redis-py in one run. `python -m bench` prints them; no ratio fails the run."""
