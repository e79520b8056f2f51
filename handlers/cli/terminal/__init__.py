"""Print the answers of commands, ask for confirmation, and read JSON input.

Start with `output.py`, which chooses between tables and JSON. `table.py` formats rows, `text.py` single values, and
`summary.py` an entry in one line. `receipt.py` prints the result of a publish. `dashboard.py` lays out the lines of
`lanebus top`, and `screen.py` draws these lines.

Each line goes through `put` of `output.py`, so no control character of a message reaches a terminal. No table is wider
than the terminal. All modules are pure
except `output.py`, `receipt.py`, `consent.py`, `screen.py` and `progress.py`.
"""
