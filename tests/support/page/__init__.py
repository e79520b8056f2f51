"""The page in a browser, and a parser of server-sent events."""
