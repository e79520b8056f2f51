"""Code that tests share, by topic. A test file imports from here and never from another test file.

- `suite`: how the suite runs: required programs, failure reports, time limits, seeds
- `servers`: real servers, clusters and proxies as separate processes
- `log`: one-word messages, readers, traffic
- `messages`: strategies for messages and for the JSON of other systems
- `formats`: samples of the messages of other systems, for the laws of codecs
- `transcripts`: sessions as files of other systems
- `agent`: scripted models, workers as processes
- `models`: local servers that implement the providers' APIs
- `providers`: checks of request bodies
- `mcp`: MCP servers
- `telemetry`: recorded OpenTelemetry spans
- `held`: a context that a fixture holds
- `serve`: the HTTP API with a client, and connections that send bytes
- `page`: the page in a browser, server-sent events
- `cli`: the command line as a process
- `docs`: the code blocks of the README and the documentation
- `golden`: recorded logs, and how to record them again
- `laws`: the model of the log, and the faults to inject
- `vectors`: the sample cases next to the repository
"""
