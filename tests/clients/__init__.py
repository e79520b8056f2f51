"""Our clients in other languages, against a real server."""
