"""The HTTP server and its page: what a browser sees of a bus. Needs the extra `serve`."""
