"""Messages of pydantic-ai: as JSON in entries, in the LLM lane, and made from the LLM lane.

`llm_messages` shows what pydantic-ai stores, and `history` makes the history of a run. `pydantic_conversations`,
`pydantic_steps` and `pydantic_runner` use them. All modules need the extra `pydantic-ai`.
"""
