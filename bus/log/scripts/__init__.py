"""The Lua scripts: all that ever writes to a session. Each opens with the map of its keys."""
