"""The HTTP server and its page: what a browser sees of a bus. Needs the extra `serve`.

Start with `server.py`; `routes.py` is the API and `auth.py` the guard before it.
"""
