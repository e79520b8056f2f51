"""The key of the agent on the Messages API, apart from it: tests that look for it need no SDK."""

API_KEY = "sk-ant-no-line-may-have-this"
