"""Fixtures that every test may use."""

pytest_plugins = (
    "tests.support.suite.process",  # first, so that the plugins after it are compiled too
    "tests.support.suite.scale",
    "tests.support.suite.failures",
    "tests.support.suite.needs",
    "tests.support.suite.full",
    "tests.support.servers.real",
    "tests.support.servers.clusters",
    "tests.support.servers.kinds",
    "tests.support.servers.object_store",
    "tests.support.log.archived",
    "tests.support.cli.command_line",
    "tests.support.page.browsing",
    "tests.support.page.bundled",
    "tests.support.node.running",
    "tests.support.node.client",
    "pytester",
)
