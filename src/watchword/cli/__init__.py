"""The command line: nouns, then verbs."""

import click

from watchword import __version__
from watchword.cli.run import CommandGroup, Lazy

# The module of each command and the first sentence of its help, which its docstring does not repeat.
_COMMANDS: Lazy = {
    "serve": ("serve", "Run the service until it is stopped."),
    "health": ("serve", "Check whether a service is healthy; exit with 1 if it is not."),
    "doctor": ("serve", "Check settings, store, keys, clock, address and permissions; exit with 1 if anything is BAD."),
    "login": ("login", "Sign in to a server and store its token for later commands."),
    "logout": ("login", "Revoke the token that `watchword login` stored, and delete it."),
    "profile": ("login", "List the servers you are signed in to and choose the current one."),
    "whoami": ("login", "Show who the server takes you for, your privileges and your scopes."),
    "token": ("token", "Create, inspect, rotate and revoke tokens."),
    "account": ("actor", "Manage service accounts, the actors for programs."),
    "policy": ("policy", "Manage policies: who may do what."),
    "group": ("group", "Manage groups of actors that policies name."),
    "actor": ("actor", "List, name, link, suspend, resume and offboard actors."),
    "session": ("actor", "List and end console sessions."),
    "mail": ("webhook", "Choose the mail you get, and test the mail server."),
    "event": ("event", "Read the audit log."),
    "webhook": ("webhook", "Send events to other services."),
    "index": ("index", "Show, truncate and load the time-series indices."),
    "retention": ("retention", "Manage how long the rows of time series are kept, and holds on them."),
    "operation": ("operation", "Watch and cancel long operations in the search index."),
    "import": ("datahub", "Import tokens, people, groups and policies from DataHub."),
    "db": ("db", "Migrate, check, back up, restore and copy the database."),
    "key": ("db", "Manage the signing keys and the master key."),
}


@click.group(
    cls=CommandGroup,
    lazy=_COMMANDS,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="watchword")
def cli() -> None:
    """Issue, verify and revoke policy-governed access tokens.

    \b
    Start with: watchword serve
    Then sign in: watchword login
    """


@cli.command()
@click.argument("shell", type=click.Choice(("bash", "zsh", "fish")))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    """Print the completion script for a shell.

    \b
    bash   echo 'source <(watchword completion bash)' >> ~/.bashrc
    zsh    echo 'source <(watchword completion zsh)' >> ~/.zshrc   (after compinit)
    fish   watchword completion fish > ~/.config/fish/completions/watchword.fish

    It takes effect in the next shell.

    Example: source <(watchword completion bash)
    """
    from click.shell_completion import get_completion_class

    kind = get_completion_class(shell)
    assert kind is not None
    root = context.find_root().command
    click.echo(kind(root, {}, "watchword", "_WATCHWORD_COMPLETE").source())
