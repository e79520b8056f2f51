"""Items of OpenAI's Agents SDK as messages of lanebus, and the other way round. Used by sessions and by agents.

`messages.py` shows stored items to people, `answers.py` reads the answers of a run and writes its input, and `usage.py`
reads what the model calls used.
"""
