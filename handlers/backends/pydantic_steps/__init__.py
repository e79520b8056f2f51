"""Store the steps of pydantic-ai's runs in sessions, for the step persistence of its harness.

Start at `step_store`; `step_state` says what the log adds up to. It needs the extra `pydantic-ai-harness`.
"""
