"""Servers: connections, pools of them, and routing to the server that holds a key.

The client library's own retries are switched off: a command is only sent again if it may run twice. Every wait is
bounded. Start with `topology.py` for the URLs, and `connection.py` for one connection.
"""
