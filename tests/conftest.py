"""Fixtures that every test may use."""

pytest_plugins = ("tests.needs", "tests.handlers.command_line", "pytester")
