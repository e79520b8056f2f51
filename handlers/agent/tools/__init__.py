"""Tools: declare them, run their calls and record the results. Sub-agents are tools too.

The start of each call is recorded before it runs, and each call has exactly one result. Start with `tool.py`;
`tool_executor.py` runs the calls of one answer.
"""
