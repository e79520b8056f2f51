"""Benchmarks: ratios of lanebus to plain redis-py in the same run. `python -m bench` prints them; it judges none."""
