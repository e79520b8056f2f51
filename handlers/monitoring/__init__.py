"""How a bus stands now: its groups of workers, the sessions they work on, and the pace.

`Watcher.look` gives an `Overview`; start in `watcher.py`. A look reads little, however much is stored, and writes
nothing. `lanebus top` prints overviews, and a page or another program may show them in its own way.
"""
