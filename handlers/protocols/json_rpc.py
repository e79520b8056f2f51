"""Error codes of JSON-RPC 2.0, and the one of protocols on top of it for what does not exist."""

__all__ = ("INTERNAL", "INVALID_PARAMS", "INVALID_REQUEST", "NOT_FOUND", "PARSE")

PARSE, INVALID_REQUEST, INVALID_PARAMS, INTERNAL, NOT_FOUND = -32700, -32600, -32602, -32603, -32002
