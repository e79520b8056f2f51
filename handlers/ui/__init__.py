"""Serve the web page of a bus and the page's HTTP API. Needs the extra `serve`.

Start with `server.py`. `api/` holds the endpoints, `auth.py` the guard that names the principal of each request, and
`gate.py` asks the rules of `handlers/access` for each route and stream.
`monitor.py` is another application: the health and the metrics of a process. It needs the extra `metrics`.
"""
