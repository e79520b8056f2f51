"""Sessions of OpenAI's Agents SDK, kept in sessions of lanebus.

Start with `session.py`. Each append stores the exact items in an extension message, and in the same step the messages
of the LLM lane that people read (`openai_items`). A pop or a clear appends an entry too, so the log keeps what was
removed. `history.py` folds the entries into the list of items.
"""
