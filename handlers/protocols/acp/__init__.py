"""The Agent Client Protocol: an agent of yours in an editor, over stdin and stdout. It needs the extra `acp`.

`lanebus acp` calls `serve_editor` in `server.py`, where `EditorAgent` answers the requests of the editor. An ACP
session is a session of the bus. `EditorSession` in `editor_session.py` follows it and sends what happens, and
`AcpEncoder` in `editor_session.py` turns the events of `RunFold` into updates.

The log has everything, so the end of the connection loses nothing: the next one loads the session and goes on.

Source: ACP version 1, schema 1.19 (`agent-client-protocol` 0.12).
"""
