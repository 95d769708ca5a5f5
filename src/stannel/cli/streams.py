"""`stannel streams`: what watchers read together, how far they are, and who holds the others up."""

from typing import TYPE_CHECKING, Any

import click

from stannel.cli.base import Group, Refused, Session, pass_session, say
from stannel.cli.output import output_option, show_one, show_rows

if TYPE_CHECKING:
    from stannel.store.trigger_records import TriggerRecord

LIST = ("key", "queue", "owner", "watchers", "online", "outstanding", "oldest_seconds", "per_second", "failed")
LAG = ("key", "waiting", "outstanding", "oldest_seconds", "per_second")
OUTSTANDING = ("key", "outstanding", "oldest_seconds", "owed_by")
MEMBERS = ("id", "asset", "watcher", "state", "attempts", "events", "last_event_at", "owes_oldest", "last_error")
_NONE = "No watcher reads a shared stream."


@click.group("streams", cls=Group)
def command() -> None:
    """Show what watchers read together, and how far they are.

    Watchers whose triggers have the same key read one stream, in one process. The figures are those that its triggerer
    told last, about a second ago; a stream that tells no broker what was stored has none.

    \b
    Examples:
      stannel streams list                      every stream, who reads it, and what is outstanding
      stannel streams show orders               one stream by a part of its key, with its watchers
      stannel streams outstanding               which event is owed longest, and by whom
      stannel streams redrive orders --id 12    have watcher 12 begin anew with what it still owes
    """


@command.command("list")
@output_option
@pass_session
def list_(session: Session, form: str) -> None:
    """List streams with their owners and the most important figures."""
    show_rows(_streams(session), form, columns=LIST, empty=_NONE)


@command.command()
@click.argument("key")
@output_option
@pass_session
def show(session: Session, key: str, form: str) -> None:
    """Show all figures of a stream, and the watchers that read it. A part of the key is enough if it names one."""
    found = _find(session, key)
    if form == "table":
        show_one({name: value for name, value in found.items() if name != "members"}, form)
        show_rows(found["members"], form, columns=MEMBERS)
    else:
        show_one(found, form)


@command.command()
@output_option
@pass_session
def lag(session: Session, form: str) -> None:
    """Show how far the slowest watcher of each stream is behind, the longest wait first."""
    rows = sorted(_streams(session), key=lambda row: -(row["oldest_seconds"] or 0.0))
    show_rows(rows, form, columns=LAG, empty=_NONE)


@command.command()
@output_option
@pass_session
def outstanding(session: Session, form: str) -> None:
    """Show streams whose broker was not told of everything yet: since when, and who owes the oldest event."""
    rows = [row for row in _streams(session) if row["outstanding"]]
    show_rows(rows, form, columns=OUTSTANDING, empty="Nothing is outstanding.")


@command.command()
@click.argument("key")
@click.option("--id", "trigger_ids", metavar="ID", type=int, multiple=True, help="Only this watcher; may be repeated.")
@pass_session
def redrive(session: Session, key: str, trigger_ids: tuple[int, ...]) -> None:
    """Have the watchers of a stream begin anew, now: what each still owes is delivered to it again.

    One that is resting after a failure is tried at once. What is stored already is not stored twice.
    """
    found = _find(session, key)
    known = [member["id"] for member in found["members"]]
    if strangers := sorted(set(trigger_ids) - set(known)):
        raise Refused(f"{found['key']} is not read by {', '.join(map(str, strangers))}, but by {known}.")
    count = session.store.triggers.redrive(trigger_ids or known)
    then = "" if found["owner"] else "; no triggerer has the stream now, they begin when one takes it"
    say(f"{count} watchers of {found['key']} begin anew{then}.")


def _find(session: Session, key: str) -> dict[str, Any]:
    rows = _streams(session)
    found = [row for row in rows if row["key"] == key] or [row for row in rows if key in row["key"]]
    if len(found) == 1:
        return found[0]
    if not found:
        raise Refused(f"No stream has {key!r} in its key. stannel streams list shows those there are.")
    raise Refused(f"{key!r} is in the keys of {len(found)} streams: {', '.join(row['key'] for row in found)}.")


def _streams(session: Session) -> list[dict[str, Any]]:
    """Every stream that the store knows, with what its owner said last."""
    grouped: dict[tuple[str, str | None], list[TriggerRecord]] = {}
    for one in session.store.triggers.all(limit=None):
        if one.watch is not None and one.watch.stream_key is not None:
            grouped.setdefault((one.watch.stream_key, one.queue), []).append(one)
    told = {
        (lease.owner, figures["key"]): figures
        for lease in session.store.leases.all()
        for figures in lease.detail.get("streams", ())
        if lease.is_live(session.now())
    }
    return [_row(*place, members, told) for place, members in sorted(grouped.items(), key=lambda item: item[0][0])]


def _row(
    key: str, queue: str | None, members: "list[TriggerRecord]", told: dict[tuple[str, str], dict[str, Any]]
) -> dict[str, Any]:
    owner = next((one.owner for one in members if one.owner), None)
    figures = told.get((owner or "", key), {})
    owing = set(figures.get("owed_by", ()))
    age = figures.get("oldest_age")
    return {
        "key": key,
        "queue": queue,
        "owner": owner,
        "watchers": len(members),
        "online": figures.get("online"),
        "waiting": figures.get("depth"),
        "outstanding": figures.get("outstanding"),
        "oldest_seconds": None if age is None else round(age, 1),
        "owed_by": [_name(one) for one in members if one.id in owing],
        "lanes": figures.get("lanes"),
        "per_second": figures.get("per_second"),
        **{name: figures.get(name) for name in ("admitted", "advanced", "failed", "rejected", "redelivered")},
        "members": [_member(one, owing) for one in members],
    }


def _member(one: "TriggerRecord", owing: set[int]) -> dict[str, Any]:
    watch = one.watch
    assert watch is not None
    return {
        "id": one.id,
        "asset": watch.asset,
        "watcher": watch.name,
        "state": str(one.state),
        "attempts": watch.attempts,
        "next_at": watch.next_at,
        "events": watch.events,
        "last_event_at": watch.last_event_at,
        "owes_oldest": one.id in owing,
        "last_error": watch.last_error,
    }


def _name(one: "TriggerRecord") -> str:
    return f"{one.watch.asset}/{one.watch.name} ({one.id})" if one.watch else str(one.id)
