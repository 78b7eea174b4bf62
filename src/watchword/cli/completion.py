"""`watchword completion`."""

import click

from watchword.cli.show import say

SHELLS = ("bash", "zsh", "fish")


@click.command()
@click.argument("shell", type=click.Choice(SHELLS))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print what a shell needs to complete commands as they are typed.

    \b
    bash   echo 'source <(watchword completion bash)' >> ~/.bashrc
    zsh    echo 'source <(watchword completion zsh)' >> ~/.zshrc   (after compinit)
    fish   watchword completion fish > ~/.config/fish/completions/watchword.fish

    It takes effect in the next shell.

    \b
    Example: source <(watchword completion bash)
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    root = context.find_root().command
    say(kind(root, {}, "watchword", "_WATCHWORD_COMPLETE").source())
