"""Read a session as other protocols show it: as one run after another, with messages that grow.

`RunFold` in `run.py` reads entries and live deltas and returns typed events, which `run_events.py` defines. It is pure.
Each protocol has a package that encodes these events. The routes of AG-UI and the AI SDK are in `handlers/ui`. ACP has
no routes: its package has its connection too.
"""
