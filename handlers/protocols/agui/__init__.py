"""AG-UI 1.0, the protocol of CopilotKit and assistant-ui: one POST is a run, whose events are its response.

`run_stream.py` reads the request and makes the frames of a run; `AguiEncoder` in `encoder.py` turns the events of a run
into AG-UI events, and its `AguiView` keeps the messages of a snapshot. All of it is pure.

A thread is a session. A run lasts until the agent rests, because a user sends one message and waits for one answer,
however many turns it takes.

Source: AG-UI 1.0 (`ag-ui-protocol` 1.0.0), and what `@ag-ui/client` 1.0.0 and 0.0.59 accept.
"""
