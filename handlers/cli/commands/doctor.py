"""`lanebus doctor`: look for what loses messages or makes commands fail."""

import click

from lanebus.bus.error_text import without_secrets
from lanebus.handlers.cli.access import OPEN_SECONDS
from lanebus.handlers.cli.doctor.checks import run_checks
from lanebus.handlers.cli.doctor.finding import Finding
from lanebus.handlers.cli.exits import ExitCode
from lanebus.handlers.cli.options import Settings, ViewCommand
from lanebus.handlers.cli.run import run
from lanebus.handlers.cli.terminal.output import Output

__all__ = ("command",)

_WIDEST = len("aof-load-truncated")


@click.command("doctor", cls=ViewCommand)
@click.option(
    "--write",
    "writes",
    is_flag=True,
    help="Also publish, read, lease and erase in a new namespace, which is removed, and write to object stores.",
)
@click.pass_context
def command(ctx: click.Context, *, writes: bool) -> int:
    """Look for causes of lost messages and of failing commands, and show a remedy for each. Changes nothing on the
    server, unless --write is given.

    \b
    It checks
    - the versions of lanebus, Python, redis-py and the server, and servers with known bugs,
    - local modules that hide installed ones,
    - settings of the server and of its replicas that lose messages in a crash or a failover,
    - whether the log was emptied or is an older copy, as far as a worker or `lanebus serve` knows it,
    - full memory, missing replicas, a failing disk and too many clients, which refuse messages,
    - settings that end connections, or refuse what is large,
    - the clock of the server, the rights of its user, and the schema of the namespace,
    - the stores of --archive and --media, with a file that is written and removed.

    If the server has users, run it twice: as an administrator for the server's settings, and as the user of your
    workers for that user's rights. Settings that the user may not read are a warning.

    The exit code is 7 if there is an error, and 0 if there are only warnings. As JSON, each line is a finding: level,
    check, text, remedy, node.

    \b
    Example: lanebus doctor --url redis://localhost:6379
    """
    settings, output = Settings.of(ctx), Output.of(ctx)

    async def main() -> list[Finding]:
        return await run_checks(settings, seconds=OPEN_SECONDS, writes=writes)

    findings = [
        each._replace(text=without_secrets(each.text), remedy=without_secrets(each.remedy)) for each in run(main)
    ]
    for each in findings:
        if output.is_json:
            output.json({**each._asdict(), "remedy": each.remedy or None, "node": each.node or None})
        else:
            place = f"{each.node}: " if each.node else ""
            output.line(f"{each.level:<8} {each.check:<{_WIDEST}}  {place}{each.text}")
            if each.remedy:
                output.line(f"{'':<8} {'':<{_WIDEST}}  hint: {each.remedy}")
    return ExitCode.FAULTS if any(each.level == "error" for each in findings) else ExitCode.DONE
