"""Writes the reference page of the command line from its commands: `python -m stannel.cli.reference`."""

import inspect
import re
import sys
from collections.abc import Iterator

import click

from stannel.cli.main import cli

_INTRODUCTION = """\
# Command line

`stannel COMMAND --help` shows the same on the screen. `--home DIR` and `--traceback` may stand before or after every
command.

Lists and single things are tables for people; `--output json`, `yaml` or `plain` (values separated by tabs, without a
header) is for programs: keys are in snake_case, moments are ISO 8601 in UTC, durations are seconds.

| exit code | meaning |
|---|---|
| 0 | all went well |
| 1 | what was asked about failed, or what was asked for was refused |
| 2 | the command line could not be understood |
| 130 | stopped by Ctrl-C |

An error is one sentence on standard error. Answers go to standard output, everything else to standard error.
"""

# Behind an example, after a gap, may stand what it does.
_EXPLANATION = re.compile(r" {3,}")


def cli_reference() -> str:
    """The whole page as Markdown."""
    return "\n".join([_INTRODUCTION, *_pages(cli, "stannel")])


def _pages(group: click.Group, path: str) -> Iterator[str]:
    context = click.Context(group, info_name=path)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        yield _page(command, f"{path} {name}", level=2 + path.count(" "))
        if isinstance(command, click.Group):
            yield from _pages(command, f"{path} {name}")


def _page(command: click.Command, path: str, *, level: int) -> str:
    context = click.Context(command, info_name=path)
    arguments = " ".join(command.collect_usage_pieces(context))
    parts = [f"{'#' * level} {path}", "", *_help(command.help or "")]
    if not isinstance(command, click.Group):
        parts += [f"```text\n{path} {arguments}\n```", "", *_options(command, context)]
    return "\n".join(parts)


def _help(text: str) -> Iterator[str]:
    """The help of a command; what stands below a `\\b` is kept as it is."""
    for paragraph in inspect.cleandoc(text).split("\n\n"):
        if not paragraph.startswith("\b"):
            yield f"{' '.join(paragraph.split())}\n"
            continue
        title, *lines = paragraph.removeprefix("\b\n").splitlines()
        examples = "\n".join(f"$ {_EXPLANATION.sub('   # ', line.strip())}" for line in lines)
        yield f"{title.strip()}\n\n```console\n{examples}\n```\n"


def _options(command: click.Command, context: click.Context) -> Iterator[str]:
    options = [one for one in command.get_params(context) if isinstance(one, click.Option) and not one.hidden]
    rows = [record for one in options if (record := one.get_help_record(context)) and "--help" not in one.opts]
    if rows:
        yield "| option | meaning |\n|---|---|"
        yield from (f"| `{_cell(names)}` | {_cell(meaning)} |" for names, meaning in rows)
        yield ""


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


if __name__ == "__main__":
    sys.stdout.write(cli_reference())
