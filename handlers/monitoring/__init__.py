"""Monitor a bus: its worker groups, the sessions that the workers run, and the current rates.

`Watcher.look` returns an `Overview`; start in `watcher.py`. A look writes nothing, and its cost does not grow with the
number of stored sessions. `lanebus top` prints overviews.
"""
