"""Figures, as ratios to plain redis-py in the same run. `python -m bench` prints them; it judges nothing."""
