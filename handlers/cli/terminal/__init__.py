"""Print the answers of commands, and read their input.

Start with `output.py`: it chooses between tables and JSON. `table.py` and `text.py` format rows and single values,
`summary.py` an entry in one line, `receipt.py` the result of a publish. `dashboard.py` lays out `lanebus top`, and
`screen.py` draws it.

No control character of a message reaches a terminal, and no table is wider than the terminal. All modules are pure but
`output.py`, `receipt.py`, `consent.py`, `screen.py` and `progress.py`.
"""
