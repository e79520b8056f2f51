"""Fixtures that every test may use."""

pytest_plugins = ("tests.needs", "tests.short_dir", "tests.servers", "pytester")
