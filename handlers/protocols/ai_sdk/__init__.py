"""The AI SDK's UI message stream: `useChat` of Vercel's AI SDK as a client of a session.

`message_stream.py` reads what the client posts, and makes the frames of a stream; `encoder.py` turns the events of a
run into the chunks of one message. All of it is pure. `read_version` in `encoder.py` says what each
version of the client accepts.

Source: `ai` 5.0.277, 6.0.322 and 7.0.173, whose clients read these streams in the tests.
"""
