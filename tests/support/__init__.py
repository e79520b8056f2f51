"""What the tests share, by topic. A test file imports from here and never from another test file.

- `suite`: how the suite runs: what it needs, where failures are written, time bounds, seeds
- `servers`: real servers, clusters and proxies as processes of their own
- `log`: what tests of the log share: messages of one word, readers, traffic
- `messages`: strategies for messages and for the JSON of other systems
- `transcripts`: sessions as files of other systems
- `agent`: models that follow a script, workers as processes
- `models`: local servers that speak the APIs of the providers
- `providers`: whether a provider would take a request
- `mcp`: MCP servers
- `page`: the page in a browser, server-sent events
- `cli`: the command line as a process
- `docs`: the code blocks of the README and of the documentation
- `golden`: recorded logs, and how to record them anew
- `laws`: the model of the log, and what strikes at it
- `vectors`: the sample cases next to the repository
"""
