"""Store pydantic-ai's conversations and steps in sessions, and run its agents in workers.

`conversation_store` keeps conversations; `llm_messages` shows them in the LLM lane. All modules need the extra
`pydantic-ai`.
"""
