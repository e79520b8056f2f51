"""Run agents of pydantic-ai in workers: `agent` takes the turns, `recording` records the tool calls."""
