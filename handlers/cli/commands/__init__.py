"""The commands of `lanebus`, one module each, named after the command. `import_` is `lanebus import`.

A module defines its command as `command`; `handlers/cli/group.py` imports the module when the command runs. A command
opens the bus, does one thing, and prints the answer as tables or text for people, or as JSON for programs. Start with
`fork.py`, a small command; `tail.py` is the most used command.
"""
