"""Reads the settings: the environment over `stannel.toml` over the defaults, refusing what cannot be meant."""

import re
import subprocess
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import msgspec

from stannel.errors import SettingsError, closest, did_you_mean
from stannel.settings.secret import Secret
from stannel.settings.sections import DECLARATIONS, HOME, SECTIONS, Declaration, Origin, Settings
from stannel.settings.values import expected, from_data, from_text

FILE_NAME = "stannel.toml"
PREFIX = "STANNEL__"
COMMAND_TIMEOUT = 60

_PART = r"""(?:[A-Za-z0-9_-]+|"[^"]*"|'[^']*')"""
_PATH = rf"{_PART}(?:\s*\.\s*{_PART})*"
_HEADER = re.compile(rf"\s*\[\[?\s*({_PATH})\s*\]")
_KEY = re.compile(rf"\s*({_PATH})\s*=")
_ERROR_LINE = re.compile(r" ?\(at line (\d+), column \d+\)$")

Name = tuple[str, str]


class Given(msgspec.Struct, frozen=True):
    """A value somebody wrote, and where: `file` is the variable's name when it is not in the file."""

    kind: Literal["file", "environment", "command", "secret"]
    value: Any
    file: str
    line: int | None = None

    @property
    def where(self) -> str:
        return self.file if self.line is None else f"{self.file}:{self.line}"


def stannel_home(environ: Mapping[str, str]) -> Path:
    """The folder everything lives in: `STANNEL_HOME`, else `~/.stannel`. It need not exist."""
    return Path(environ.get("STANNEL_HOME") or "~/.stannel").expanduser().absolute()


def load_settings(home: Path, environ: Mapping[str, str]) -> Settings:
    """All settings that hold for `home`; a value that cannot be used is a SettingsError, an unknown key a warning."""
    home = home.expanduser().absolute()
    variables, file = _read_environment(environ), _read_file(home / FILE_NAME)
    warnings = [*_unknown(file), *_unknown(variables)]

    values: dict[str, dict[str, Any]] = {section: {} for section in SECTIONS}
    origins: dict[Name, Origin] = {}
    for row in DECLARATIONS:
        given = _find(row, variables, home, environ) or _find(row, file, home, environ)
        values[row.section][row.key] = _converted(row, given, home) if given else _default(row.default, home)
        origins[row.section, row.key] = Origin(given.kind, given.where) if given else Origin("default")

    sections: dict[str, Any] = {name: kind(**values[name]) for name, kind in SECTIONS.items()}
    settings = Settings(home=home, origins=origins, warnings=tuple(warnings), **sections)
    _check_together(settings)
    return settings


def _read_environment(environ: Mapping[str, str]) -> dict[Name, Given]:
    found = {}
    for variable in sorted(environ):
        section, separator, key = variable.removeprefix(PREFIX).partition("__")
        if variable.startswith(PREFIX) and separator:
            found[section.lower(), key.lower()] = Given("environment", environ[variable], variable)
    return found


def _read_file(path: Path) -> dict[Name, Given]:
    try:
        text = path.read_text(encoding="utf-8-sig")
        content = tomllib.loads(text)
    except FileNotFoundError:
        return {}
    except tomllib.TOMLDecodeError as error:
        raise _syntax_error(path, str(error)) from error
    except UnicodeDecodeError as error:
        raise SettingsError(str(path), None, None, "is not UTF-8 text") from error
    except OSError as error:
        raise SettingsError(str(path), None, None, f"cannot be read ({error.strerror})") from error

    lines = _lines(text)
    found = {}
    for section, keys in content.items():
        line = lines.get((section,))
        if not isinstance(keys, dict):
            if section in SECTIONS:
                raise SettingsError(str(path), line, f"[{section}]", "must be a table of settings")
            found["", section] = Given("file", keys, str(path), line)
            continue
        if not keys:
            found[section, ""] = Given("file", None, str(path), line)
        for key, value in keys.items():
            found[section, key] = Given("file", value, str(path), lines.get((section, key), line))
    return found


def _syntax_error(path: Path, message: str) -> SettingsError:
    line = _ERROR_LINE.search(message)
    reason = _ERROR_LINE.sub("", message)
    return SettingsError(str(path), int(line[1]) if line else None, None, f"is not valid TOML here ({reason})")


def _lines(text: str) -> dict[tuple[str, ...], int]:
    """The first line that mentions each section and key; tomllib does not say."""
    found: dict[tuple[str, ...], int] = {}
    header: tuple[str, ...] = ()
    for number, line in enumerate(text.splitlines(), start=1):
        if match := _HEADER.match(line):
            header = path = _split(match[1])
        elif match := _KEY.match(line):
            path = header + _split(match[1])
        else:
            continue
        for length in (1, 2):
            found.setdefault(path[:length], number)
    return found


def _split(path: str) -> tuple[str, ...]:
    return tuple(part.strip("\"'") for part in re.findall(_PART, path))


def _find(row: Declaration, layer: dict[Name, Given], home: Path, environ: Mapping[str, str]) -> Given | None:
    if given := layer.get((row.section, row.key)):
        return given
    if given := layer.get((row.section, f"{row.key}_cmd")):
        return msgspec.structs.replace(given, kind="command", value=_output(row, given, environ))
    if given := layer.get((row.section, f"{row.key}_secret")):
        return msgspec.structs.replace(given, kind="secret", value=_content(row, given, home))
    return None


def _output(row: Declaration, given: Given, environ: Mapping[str, str]) -> str:
    command = ["/bin/sh", "-c", str(given.value)]
    try:
        done = subprocess.run(
            command,
            env=dict(environ),
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=COMMAND_TIMEOUT,
            check=True,
        )
    except subprocess.CalledProcessError as error:
        complaint = error.stderr.strip() or "it said nothing"
        reason = f"was to come from a command that ended with exit code {error.returncode} ({complaint})"
        raise SettingsError(given.file, given.line, row.name, reason) from error
    except (subprocess.TimeoutExpired, UnicodeDecodeError, OSError) as error:
        reason = f"was to come from a command that could not be run to its end ({type(error).__name__})"
        raise SettingsError(given.file, given.line, row.name, reason) from error
    return done.stdout.rstrip("\r\n")


def _content(row: Declaration, given: Given, home: Path) -> str:
    path = home / "secrets" / Path(str(given.value)).expanduser()
    try:
        return path.read_text(encoding="utf-8").rstrip("\r\n")
    except (UnicodeDecodeError, OSError) as error:
        reason = f"was to be read from {path}, which cannot be read ({getattr(error, 'strerror', None) or error})"
        raise SettingsError(given.file, given.line, row.name, reason) from error


def _converted(row: Declaration, given: Given, home: Path) -> Any:
    try:
        value = from_data(given.value, row.type) if given.kind == "file" else from_text(given.value, row.type)
    except (ValueError, TypeError) as error:
        raise SettingsError(given.file, given.line, row.name, _complaint(row, given, error)) from error
    return home / value if isinstance(value, Path) else value


def _complaint(row: Declaration, given: Given, error: Exception) -> str:
    must_be = f"must be {expected(row.type)}"
    if row.secret or given.kind in ("command", "secret"):
        return must_be
    # Only inside a list or a table does the decoder know more than the two halves of this sentence.
    detail = f" ({error})" if isinstance(given.value, dict | list) else ""
    return f"{must_be}, not {given.value!r}{detail}"


def _default(default: Any, home: Path) -> Any:
    if isinstance(default, Path):
        return Path(str(default).replace(HOME, str(home)))
    if isinstance(default, Secret):
        return Secret(default.reveal().replace(HOME, str(home)))
    return default


def _unknown(layer: dict[Name, Given]) -> list[str]:
    known = {(row.section, f"{row.key}{suffix}") for row in DECLARATIONS for suffix in ("", "_cmd", "_secret")}
    return [
        f"{given.where}: {_described(*name)}" for name, given in layer.items() if name not in known and _matters(*name)
    ]


def _matters(section: str, key: str) -> bool:
    return bool(key) or section not in SECTIONS


def _described(section: str, key: str) -> str:
    elsewhere = [row.name for row in DECLARATIONS if row.key == key]
    if not section:
        return f"unknown key {key} outside of any section{did_you_mean(elsewhere)}"
    if section not in SECTIONS:
        return f"unknown section [{section}]{did_you_mean(closest(section, SECTIONS, limit=1) or elsewhere)}"

    near = closest(key, [row.key for row in DECLARATIONS if row.section == section], limit=1)
    return f"unknown key [{section}] {key}{did_you_mean(elsewhere or near)}"


def _check_together(settings: Settings) -> None:
    scheduler, sdk = settings.scheduler, settings.sdk
    if scheduler.lease_seconds <= scheduler.scheduler_heartbeat_sec:
        reason = "must be longer than [scheduler] scheduler_heartbeat_sec, or every lease is lost"
        raise _refused(settings, reason, ("scheduler", "lease_seconds"), ("scheduler", "scheduler_heartbeat_sec"))
    if settings.core.xcom_max_size >= settings.workers.frame_limit:
        reason = "must be less than [workers] frame_limit, because an XCom travels in one frame"
        raise _refused(settings, reason, ("core", "xcom_max_size"), ("workers", "frame_limit"))
    for queue, coordinator in sdk.queue_to_coordinator.items():
        if coordinator not in sdk.coordinators:
            reason = f"sends the queue {queue!r} to {coordinator!r}, which is not one of [sdk] coordinators"
            raise _refused(settings, reason, ("sdk", "queue_to_coordinator"))


def _refused(settings: Settings, reason: str, subject: Name, *others: Name) -> SettingsError:
    """Defaults agree with each other, so the place to look at is one that somebody wrote."""
    where = next(filter(None, (settings.origins[name].where for name in (subject, *others))))
    section, key = subject
    file, _, line = where.rpartition(":")
    if line.isdigit():
        return SettingsError(file, int(line), f"[{section}] {key}", reason)
    return SettingsError(where, None, f"[{section}] {key}", reason)
