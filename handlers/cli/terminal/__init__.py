"""What the command line prints and reads.

`output.py` chooses between tables and JSON; start there. `table.py` and `text.py` lay out rows and single values,
`summary.py` tells an entry in a line, `receipt.py` what a publish did. `dashboard.py` draws what `lanebus top` shows,
and `screen.py` puts it into a window.

No control character of a message reaches a terminal, and no line of a table is wider than it. All but `output.py`,
`screen.py` and `progress.py` are pure.
"""
