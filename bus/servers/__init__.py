"""Servers: connections, pools, and how the server of a key is found.

The client's own retries are switched off: a command is sent again only where it may run twice. Every wait is bounded.
Start with `topology.py` for what a URL means, and `connection.py` for one connection.
"""
