"""``criproxy completion``: prints the script with which a shell completes our commands."""

import click
from click.shell_completion import get_completion_class

PROGRAM = "criproxy"


AS_WRITTEN = "\b"
"""The character before a paragraph whose line breaks click keeps."""
HELP = f"""Print the script with which a shell completes commands, options and names of containers.

{AS_WRITTEN}
bash: criproxy completion bash > /etc/bash_completion.d/criproxy
zsh:  criproxy completion zsh > "${{fpath[1]}}/_criproxy"
fish: criproxy completion fish > ~/.config/fish/completions/criproxy.fish
"""


@click.command(short_help="Print the completion script of a shell.", help=HELP)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
def command(shell: str) -> None:
    """Print the script with which a shell completes commands, options and names of containers."""
    from criproxy.cli import main

    kind = get_completion_class(shell)
    assert kind is not None, "click knows all that the argument takes"
    script = kind(main, {}, PROGRAM, f"_{PROGRAM.upper()}_COMPLETE")
    # Not `source()`: it requires the shell, which may be on another machine.
    click.echo(script.source_template % script.source_vars())
