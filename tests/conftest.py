"""Fixtures that every test may use."""

pytest_plugins = ("tests.needs", "tests.servers", "pytester")
