"""`lanebus completion`: print the script that completes commands in a shell."""

import click
from click.shell_completion import ShellComplete, get_completion_class

__all__ = ("command",)

_SHELLS = ("bash", "zsh", "fish")


@click.command("completion")
@click.argument("shell", type=click.Choice(_SHELLS))
@click.pass_context
def command(ctx: click.Context, shell: str) -> None:
    """Print a script for SHELL that completes commands, options, choices, session ids, agents and groups. Session ids,
    agents and groups are read from the bus that the command line or the environment names. At most 100 are shown, and
    none if the bus takes longer than one second.

    \b
    bash: add to ~/.bashrc                     eval "$(lanebus completion bash)"
    zsh:  add to ~/.zshrc                      eval "$(lanebus completion zsh)"
    fish: save as completions/lanebus.fish     lanebus completion fish > ~/.config/fish/completions/lanebus.fish

    \b
    Example: lanebus completion bash
    """
    script = get_completion_class(shell)
    assert script is not None  # noqa: S101  # only for the type checker: click has these three
    # The class of bash would start a bash to look at its version.
    click.echo(ShellComplete.source(script(ctx.find_root().command, {}, "lanebus", "_LANEBUS_COMPLETE")), nl=False)
