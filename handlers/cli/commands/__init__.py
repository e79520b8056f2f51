"""The commands of `lanebus`. A module has one command, or a few on one topic; `handlers/cli/group.py` says which.

A module defines its only command as `command`, and one of several as `<name>_command`. It is imported when the command
runs. A command opens the bus, does one thing, and prints the answer as tables or text for people, or as JSON for
programs. Start with `fork` in `write.py`, a small command; `show.py` is the most used command.
"""
