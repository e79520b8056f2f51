"""Store for other frameworks: their own interfaces for checkpoints, sessions and events, kept as logs of lanebus.

One package for each framework, each with an extra of the same name. What a framework appends, changes or clears becomes
entries of a session. So the page, usage, forks, archives and followers work as for any other agent.
"""
