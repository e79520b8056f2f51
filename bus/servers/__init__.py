"""Connect to servers: connections, pools of connections, and routing to the server that holds a key.

The client library's own retries are switched off, because a command may be sent again only if it may run twice. Every
wait is bounded. Start with `topology.py` for the URLs, and with `connection.py` for one connection.
"""
