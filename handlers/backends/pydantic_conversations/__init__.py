"""Store pydantic-ai's conversations in sessions, and their forks in forks.

Start at `conversation_store`. `save` says what a save appends, and `conversation_state` what the log adds up to.
"""
