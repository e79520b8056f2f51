"""The key of the agent on the Messages API, apart from it: tests that look for it need no SDK."""

__all__ = ("API_KEY",)

API_KEY = "sk-ant-no-line-may-have-this"
