"""Fixtures that every test may use."""

pytest_plugins = (
    "tests.support.suite.scale",
    "tests.support.suite.needs",
    "tests.support.servers.tiny",
    "tests.support.servers.real",
    "tests.support.servers.clusters",
    "tests.support.suite.short_dir",
    "tests.support.servers.object_store",
    "tests.support.log.archived",
    "tests.support.cli.command_line",
    "pytester",
)
