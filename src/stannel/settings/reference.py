"""Writes the reference page of the settings from their table: `python -m stannel.settings.reference`."""

import sys

import msgspec

from stannel.settings.sections import DECLARATIONS, SECTIONS, Declaration, shown
from stannel.settings.values import expected

_INTRODUCTION = """\
# Settings

Stannel reads `stannel.toml` in its home folder. The home is `STANNEL_HOME`, or `~/.stannel`; here it is
written `<home>`. Without a file every default holds.

```toml
[core]
parallelism = 64
default_timezone = "Europe/Berlin"

[database]
sql_alchemy_conn_secret = "database-address"
```

Each setting can be given in six ways. The first one that is there wins:

| where | what it means |
|---|---|
| `STANNEL__CORE__PARALLELISM` | the value itself, as an environment variable |
| `STANNEL__CORE__PARALLELISM_CMD` | a shell command that prints the value |
| `STANNEL__CORE__PARALLELISM_SECRET` | the name of a file that holds the value |
| `parallelism` in the file | the value itself |
| `parallelism_cmd` in the file | a shell command that prints the value |
| `parallelism_secret` in the file | the name of a file that holds the value |

A command runs with `/bin/sh -c`, has a minute, and must end with exit code 0. A secret's name is looked up in
`<home>/secrets`; an absolute path, such as one below `/run/secrets`, is read where it is. Line ends after the value
are dropped.

In an environment variable, true and false may also be written `yes`/`no`, `on`/`off` or `1`/`0`; a list is separated
by commas or written as a TOML array; a table is written as JSON or TOML. A path that is not absolute starts at the
home.

A value of the wrong type is refused before anything starts, with its file and line. An unknown key is reported and has
no effect. `stannel config list` shows every setting with its value and where it came from; a secret shows as `***`.
"""


def settings_reference() -> str:
    """The whole page as Markdown."""
    return "\n".join([_INTRODUCTION, *(_section(name) for name in SECTIONS)])


def _section(name: str) -> str:
    rows = "\n".join(_row(row) for row in DECLARATIONS if row.section == name)
    return f"## [{name}]\n\n{SECTIONS[name].__doc__}\n\n| key | type | default | meaning |\n|---|---|---|---|\n{rows}\n"


def _row(row: Declaration) -> str:
    kind = f"{expected(row.type)}, secret" if row.secret else expected(row.type)
    return f"| `{row.key}` | {kind} | {_written(row)} | {row.description} |"


def _written(row: Declaration) -> str:
    value = shown(row.default, is_default=True)
    if value is None or value in ("", (), {}):
        return "empty"
    return f"`{value}`" if isinstance(value, str) else f"`{msgspec.json.encode(value).decode()}`"


if __name__ == "__main__":
    sys.stdout.write(settings_reference())
