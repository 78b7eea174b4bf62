"""`watchword doctor`."""

import json
from collections.abc import Iterator

import click

from watchword.cli.backstage import Backstage
from watchword.cli.common import flags_of, json_flag
from watchword.cli.outcome import plain_errors
from watchword.cli.text import one_line
from watchword.domain.diagnostics import Diagnostic, Level, bad, ok
from watchword.settings import TABLE, load_with_defaults, server_url


@click.command()
@json_flag
@flags_of(*(setting.name for setting in TABLE))
@click.pass_obj
def doctor(backstage: Backstage, /, as_json: bool, **flags: str | None) -> None:
    """Look at settings, store, keys, clock, address and permissions; exit code 1 if anything is BAD.

    It changes nothing, and works whether the service runs or not. A running service is judged by what it answers; what
    a start rests on, by the settings given here.

    \b
    Example: watchword doctor --data-dir ./watchword-data
    """
    with plain_errors():
        found = list(_findings(backstage, flags))
    if as_json:
        click.echo(json.dumps([_shown(finding) for finding in found]))
    else:
        for finding in found:
            fix = f". Fix: {finding.fix}" if finding.fix else ""
            click.echo(one_line(f"{finding.level.value:<5}{finding.about}: {finding.what}{fix}"))
    if any(finding.level is Level.BAD for finding in found):
        raise SystemExit(1)


def _findings(backstage: Backstage, flags: dict[str, str | None]) -> Iterator[Diagnostic]:
    settings, problems, given = load_with_defaults(flags)
    for problem in problems:
        yield bad("settings", problem.rstrip("."), "Correct it; what follows is as if it were not set.")
    if not problems:
        yield ok("settings", f"{', '.join(given)} given and valid" if given else "none given, so the defaults hold")
    yield from backstage.diagnose(settings, server_url())


def _shown(finding: Diagnostic) -> dict[str, str | None]:
    return {"level": finding.level.value, "about": finding.about, "what": finding.what, "fix": finding.fix}
