"""The commands of `lanebus`, one file a command, each named as its command; `import_` is `lanebus import`.

A module has its command as `command`, and `handlers/cli/group.py` imports it when that is run. A command opens the bus,
does one thing with it, and prints the answer in two forms: tables or text for people, JSON for programs. Start with
`fork.py`, the smallest; `tail.py` is the one that most people use.
"""
