"""Fixtures that every test may use."""

pytest_plugins = (
    "tests.needs",
    "tests.servers",
    "tests.clusters",
    "tests.short_dir",
    "tests.object_store",
    "tests.contract.archived",
    "tests.handlers.command_line",
    "pytester",
)
