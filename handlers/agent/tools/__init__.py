"""Tools: how they are declared, run and answered, and agents that are called as tools.

Each call is in the log before it runs, and has exactly one result. Start with `tool.py`; `tool_executor.py` runs the
calls of one answer.
"""
