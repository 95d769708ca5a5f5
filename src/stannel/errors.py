"""Every error Stannel raises on purpose: a sentence for people, attributes for programs."""

import importlib
import re
from collections.abc import Iterable, Sequence
from typing import Any

_URL_PASSWORD = re.compile(r"(?P<login>://[^/?#:@]*):.*@", re.DOTALL)
_QUERY_PASSWORD = re.compile(r"(?P<key>[?&](?:password|passwd|sslpassword|passfile)=)[^&#]*", re.IGNORECASE)


class StannelError(Exception):
    """The root of all errors raised on purpose; anything else is a bug."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__)


def _rebuild(kind: type[StannelError], args: tuple[Any, ...], state: dict[str, Any]) -> StannelError:
    error = kind.__new__(kind, *args)
    error.__dict__.update(state)
    return error


def closest(given: str, known: Iterable[str], limit: int = 3) -> list[str]:
    """The known names that `given` was probably meant to be, best first. Empty: nothing is near."""
    by_folded = {name.casefold(): name for name in known}
    # Loaded when something went wrong: no process that does well has to hold it.
    near = importlib.import_module("difflib").get_close_matches
    return [by_folded[name] for name in near(given.casefold(), by_folded, n=limit, cutoff=0.6)]


def did_you_mean(suggestions: Sequence[str]) -> str:
    """`; did you mean a or b?`, ready to follow a clause. Empty when there is nothing to suggest."""
    if not suggestions:
        return ""
    *others, last = suggestions
    return f"; did you mean {', '.join(others)} or {last}?" if others else f"; did you mean {last}?"


def address_without_password(url: str) -> str:
    """The address as it may be shown: whatever stands where a password can stand is replaced by `***`."""
    # A password may hold an unquoted @, / or ?, so everything up to the last @ counts as password.
    return _QUERY_PASSWORD.sub(r"\g<key>***", _URL_PASSWORD.sub(r"\g<login>:***@", url))


class SettingsError(StannelError):
    """A setting cannot be used; nothing was started. `file` is the variable's name when it is in the environment."""

    def __init__(self, file: str, line: int | None, key: str | None, reason: str) -> None:
        where = file if line is None else f"{file}:{line}"
        subject = f"{key} " if key else ""
        super().__init__(f"{where}: {subject}{reason}; correct it and start again.")
        self.file, self.line, self.key, self.reason = file, line, key, reason


class UnknownId(StannelError):
    """Nothing of this kind has the given name; nothing was changed."""

    def __init__(self, kind: str, given: str, suggestions: Sequence[str] = ()) -> None:
        super().__init__(f"There is no {kind} {given!r}{did_you_mean(suggestions) or '.'}")
        self.kind, self.given, self.suggestions = kind, given, tuple(suggestions)


class StoreTooNew(StannelError):
    """The database was written by a newer Stannel; it was not touched."""

    def __init__(self, found: str, supported: str) -> None:
        super().__init__(
            f"The database has version {found}, but this Stannel knows versions up to {supported}; "
            "it was left untouched. Install the newer Stannel, or restore a backup made before the upgrade."
        )
        self.found, self.supported = found, supported


class StoreUnavailable(StannelError):
    """The database did not answer; what was not committed did not happen."""

    def __init__(self, url: str, reason: str) -> None:
        address = address_without_password(url)
        super().__init__(f"The database at {address} cannot be used: {reason}. Check [database] sql_alchemy_conn.")
        self.url, self.reason = address, reason


class StoreReadOnly(StannelError):
    """The database refuses writes; everything in it is as it was."""

    def __init__(self, url: str) -> None:
        address = address_without_password(url)
        super().__init__(
            f"The database at {address} is read-only; nothing was written. "
            "Give this user the right to write to it and to its folder."
        )
        self.url = address


class DiskFull(StannelError):
    """There is no room left to write; what was stored before is intact."""

    def __init__(self, path: str) -> None:
        super().__init__(f"There is no space left to write {path}; what was stored before is intact. Free some space.")
        self.path = path


class ImportFailed(StannelError):
    """A DAG file could not be imported; DAGs of other files are not affected."""

    def __init__(self, file: str, reason: str) -> None:
        super().__init__(f"{file} could not be imported: {reason}. Its DAGs get no new runs until it can be.")
        self.file, self.reason = file, reason


class DagInvalid(StannelError):
    """A DAG contradicts itself; it will not be scheduled until its file changes."""

    def __init__(self, dag_id: str, file: str | None, reason: str) -> None:
        where = f" in {file}" if file else ""
        super().__init__(f"The DAG {dag_id!r}{where} cannot be used: {reason}.")
        self.dag_id, self.file, self.reason = dag_id, file, reason


class CycleFound(DagInvalid):
    """Tasks wait for each other in a circle; `path` begins and ends with the same task."""

    def __init__(self, dag_id: str, path: Sequence[str], file: str | None = None) -> None:
        super().__init__(dag_id, file, f"its tasks wait for each other in a circle: {' >> '.join(path)}")
        self.path = tuple(path)


class DuplicateTaskId(DagInvalid):
    """Two tasks of one DAG have the same id."""

    def __init__(self, dag_id: str, task_id: str, file: str | None = None) -> None:
        super().__init__(dag_id, file, f"it has two tasks with the id {task_id!r}; give one of them another id")
        self.task_id = task_id


class XComTooLarge(StannelError):
    """The value was not stored."""

    def __init__(self, size: int, limit: int, key: str = "return_value") -> None:
        super().__init__(
            f"The XCom {key!r} has {size:,} bytes, more than the {limit:,} allowed by [core] xcom_max_size; "
            "it was not stored. Write the data to a file or an object store and pass its address."
        )
        self.size, self.limit, self.key = size, limit, key


class NotSerializable(StannelError):
    """A value cannot leave its process; it was not stored."""

    def __init__(self, what: str, reason: str) -> None:
        super().__init__(f"{what} cannot be stored: {reason}. Use texts, numbers, dates, lists and dicts of them.")
        self.what, self.reason = what, reason


class ProtocolError(StannelError):
    """The other side of a connection broke the protocol; the connection is given up."""


class PluginMissing(StannelError):
    """No such plug-in is installed. `extra` is the optional part of a package that brings it, when that is known."""

    def __init__(
        self, kind: str, name: str, extra: str | None = None, *, package: str = "stannel", installed: Sequence[str] = ()
    ) -> None:
        if extra:
            advice = f"install it with: pip install '{package}[{extra}]'"
        elif installed:
            advice = f"installed are: {', '.join(installed)}"
        else:
            advice = "none of this kind is installed"
        super().__init__(f"The plug-in {name!r} of {kind} is not available; {advice}.")
        self.kind, self.name, self.extra = kind, name, extra


class PluginBroken(StannelError):
    """An installed plug-in could not be imported; `distribution` is the package to repair or remove."""

    def __init__(self, kind: str, name: str, distribution: str, reason: str) -> None:
        super().__init__(
            f"The plug-in {name!r} of {kind}, installed by {distribution}, could not be imported: {reason}. "
            f"Repair or remove {distribution}."
        )
        self.kind, self.name, self.distribution, self.reason = kind, name, distribution, reason


class DuplicatePlugin(StannelError):
    """Two packages claim one plug-in name; neither is used."""

    def __init__(self, kind: str, name: str, first: str, second: str) -> None:
        super().__init__(
            f"The plug-in {name!r} of {kind} is offered by both {first} and {second}; uninstall one of them."
        )
        self.kind, self.name, self.first, self.second = kind, name, first, second


class MoveRefused(StannelError):
    """The table of moves has no such move; the state stays as it is."""

    def __init__(self, noun: str, source: str, target: str) -> None:
        super().__init__(f"A {noun} cannot go from {source!r} to {target!r}; it stays {source!r}.")
        self.noun, self.source, self.target = noun, source, target


class InvalidId(StannelError):
    """An author chose an id that cannot be used."""

    def __init__(self, kind: str, value: object, reason: str) -> None:
        super().__init__(f"{value!r} cannot be the id of a {kind}: {reason}.")
        self.kind, self.value, self.reason = kind, value, reason


class StoreOutdated(StannelError):
    """The database was written by an older Stannel; it was not touched."""

    def __init__(self, found: str, needed: str) -> None:
        super().__init__(
            f"The database has version {found} and this Stannel needs {needed}; it was left untouched. "
            "Stop all Stannel programs and run: stannel db upgrade."
        )
        self.found, self.needed = found, needed


class RunExists(StannelError):
    """The DAG has such a run already; no second one was made."""

    def __init__(self, dag_id: str, run_id: str) -> None:
        super().__init__(f"The DAG {dag_id!r} already has a run {run_id!r}, or one with the same logical date.")
        self.dag_id, self.run_id = dag_id, run_id


class InvalidCron(StannelError):
    """A cron expression cannot be used; the DAG that has it will not be scheduled until its file changes."""

    def __init__(self, expression: str, reason: str) -> None:
        super().__init__(f"The cron expression {expression!r} cannot be used: {reason}.")
        self.expression, self.reason = expression, reason


class UnknownTimezone(StannelError):
    """No time zone has this name; whatever named it will not be scheduled until that is corrected."""

    def __init__(self, timezone: str) -> None:
        super().__init__(f"There is no time zone {timezone!r}; use a name such as 'UTC' or 'Europe/Berlin'.")
        self.timezone = timezone


class SecretUnreadable(StannelError):
    """A stored secret was sealed with a key that is not configured any more."""

    def __init__(self, what: str) -> None:
        super().__init__(
            f"The secret of {what} cannot be decrypted with the configured keys. "
            "Add the key it was made with to [core] fernet_key (newest first), or store the value again."
        )
        self.what = what
