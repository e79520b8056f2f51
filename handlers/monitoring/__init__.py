"""Monitor a bus: its worker groups, the sessions that the workers run, and the current rates.

`Watcher.look` returns an `Overview`; start in `watcher.py`. A look writes nothing, and its cost does not grow with the
number of stored sessions. `lanebus top` prints overviews.

A process describes itself too. `log_events.py` has the events that it logs, `server_health.py` says whether the server
answers, and `metric_table.py` has the metrics that `metrics.py` makes of its counters. Only `metrics.py` needs the
extra `metrics`. `data/` has the alerts and the dashboard for these metrics.
"""
