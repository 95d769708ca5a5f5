"""`stannel dags`: everything about DAGs."""

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

import click

from stannel.cli.base import Group, Refused, Session, pass_session, say
from stannel.cli.output import console, moment, output_option, show_one, show_rows
from stannel.cli.values import JSON_OBJECT, MOMENT

if TYPE_CHECKING:
    from stannel.model.dag import DagSpec
    from stannel.model.schedule import AnySchedule
    from stannel.store.dags import DagStatus


@click.group("dags", cls=Group)
def command() -> None:
    """List, trigger, pause and try out DAGs.

    \b
    Examples:
      stannel dags list
      stannel dags trigger my_dag --conf '{"day": "monday"}' --wait
      stannel dags test my_dag                     run it here and now, record nothing
      stannel dags list-import-errors
    """


@command.command("list")
@click.option("--all", "inactive", is_flag=True, help="Also DAGs whose file is gone.")
@click.option("--tag", "tags", multiple=True, help="Only DAGs with this tag.")
@click.option("--paused/--unpaused", "paused", default=None, help="Only paused ones, or only those that are not.")
@output_option
@pass_session
def list_(session: Session, inactive: bool, tags: tuple[str, ...], paused: bool | None, form: str) -> None:
    """List the DAGs, when each runs next, and what is wrong with any."""
    rows = [dag_row(session, status) for status in session.store.dags.all(inactive=inactive)]
    rows = [row for row in rows if set(tags) <= set(row["tags"]) and paused in (None, row["is_paused"])]
    folder = session.settings.core.dags_folder
    empty = f"No DAGs. Put a file into {folder} and start: stannel standalone"
    show_rows(rows, form, columns=("dag_id", "schedule", "next_run", "is_paused", "status", "fileloc"), empty=empty)
    broken = sum(file.error is not None for file in session.store.dags.files())
    if broken and form == "table":
        say(f"{broken} DAG files cannot be imported; stannel dags list-import-errors shows why.")


@command.command()
@click.argument("dag_id", metavar="DAG")
@output_option
@pass_session
def show(session: Session, dag_id: str, form: str) -> None:
    """Show a DAG: its schedule, params, tasks and how they depend on each other."""
    import msgspec

    status = session.store.dags.get(dag_id)
    spec = session.store.dags.spec(status.version)
    row = dag_row(session, status)
    if form != "table":
        show_one({**row, "spec": msgspec.to_builtins(spec, enc_hook=str)}, form)
        return
    about = {
        **row,
        "start_date": spec.start_date,
        "end_date": spec.end_date,
        "catchup": spec.catchup,
        "max_active_runs": spec.max_active_runs,
        "params": {name: param.default for name, param in spec.params.items()},
    }
    show_one(about, form)
    console().print(_tree(spec))


@command.command()
@click.argument("dag_id", metavar="DAG")
@click.option("--conf", type=JSON_OBJECT, default="{}", metavar="JSON", help="Values for the run; @FILE reads them.")
@click.option("--run-id", help="What the run is called; otherwise manual__ and its date.")
@click.option("--logical-date", type=MOMENT, metavar="DATE", help="What the run is about; otherwise now.")
@click.option("--run-after", type=MOMENT, metavar="DATE", help="Not to start before this.")
@click.option("--note", help="A note for those who look at the run.")
@click.option("--wait", is_flag=True, help="Watch the run to its end; exit code 1 when it fails.")
@click.option("--timeout", type=click.FloatRange(min=0), metavar="SECONDS", help="Watch for so long at most.")
@output_option
@click.pass_context
def trigger(
    context: click.Context, /, *, dag_id: str, wait: bool, timeout: float | None, form: str, **given: Any
) -> None:
    """Start a run of a DAG."""
    from stannel.cli.runs import run_row
    from stannel.cli.trigger import create_manual_run
    from stannel.model.states import RunState

    session = context.ensure_object(Session)
    run = create_manual_run(session.store, dag_id, now=session.now(), **given)
    paused = session.store.dags.get(dag_id).is_paused
    if paused:
        say(f"The DAG {dag_id!r} is paused; the run will not start until: stannel dags unpause {dag_id}")
    if wait:
        from stannel.cli.watch import watch_run

        say(f"The run {run.run_id!r} of {dag_id!r} is made.")
        run = watch_run(session, run, timeout=timeout)
    if form == "table" and not wait:
        say(f"The run {run.run_id!r} of {dag_id!r} is made; watch it with: stannel runs show {dag_id} {run.run_id}")
    elif form != "table":
        show_one(run_row(session, run), form)
    if wait and run.state is not RunState.SUCCESS:
        context.exit(1)


@command.command()
@click.argument("dag_ids", metavar="DAG...", nargs=-1, required=True)
@pass_session
def pause(session: Session, dag_ids: tuple[str, ...]) -> None:
    """Make no new runs of DAGs and start no more of their tasks."""
    _pause(session, dag_ids, paused=True)


@command.command()
@click.argument("dag_ids", metavar="DAG...", nargs=-1, required=True)
@pass_session
def unpause(session: Session, dag_ids: tuple[str, ...]) -> None:
    """Go on with DAGs that were paused."""
    _pause(session, dag_ids, paused=False)


@command.command()
@click.argument("dag_id", metavar="DAG")
@click.option("--conf", type=JSON_OBJECT, default="{}", metavar="JSON", help="Values for the run; @FILE reads them.")
@click.option("--logical-date", type=MOMENT, metavar="DATE", help="What the run is about; otherwise now.")
@click.option("--file", type=click.Path(exists=True, dir_okay=False), help="The file the DAG is in, wherever it is.")
@click.option("--quiet", "-q", is_flag=True, help="Leave out the logs of the tasks.")
@click.pass_context
def test(context: click.Context, /, **given: Any) -> None:
    """Run a DAG to its end, here and now, in a store of its own that is thrown away."""
    from stannel.cli.trial import test_dag

    context.exit(0 if test_dag(context.ensure_object(Session), **given) else 1)


@command.command()
@click.argument("dag_id", metavar="DAG")
@click.argument("run", required=False)
@click.pass_context
def state(context: click.Context, dag_id: str, run: str | None) -> None:
    """Print the state of a run (a run id, a logical date, or the latest); exit code 1 when it has failed."""
    from stannel.cli.runs import show_state

    show_state(context, dag_id, run)


@command.command("next-execution")
@click.argument("dag_id", metavar="DAG")
@click.option("--count", "-n", type=click.IntRange(1, 1000), default=1, show_default=True, help="So many of the next.")
@output_option
@pass_session
def next_execution(session: Session, dag_id: str, count: int, form: str) -> None:
    """Print when a DAG runs next by its schedule."""
    from stannel.scheduler.timetables import next_run

    status = session.store.dags.get(dag_id)
    spec = session.store.dags.spec(status.version)
    now = session.now()
    due = status.next_run or next_run(spec, None, now, first_seen=status.first_seen)
    rows: list[dict[str, Any]] = []
    while due is not None and len(rows) < count:
        rows.append(
            {
                "run_after": due.run_after,
                "logical_date": due.logical_date,
                "data_interval_start": due.interval.start if due.interval else None,
                "data_interval_end": due.interval.end if due.interval else None,
            }
        )
        due = next_run(spec, due, max(now, due.run_after), first_seen=status.first_seen)
    if not rows and form == "table":
        raise Refused(f"The DAG {dag_id!r} does not run by itself: its schedule is {describe_schedule(spec)}.")
    if status.is_paused:
        say(f"The DAG {dag_id!r} is paused; it runs only after: stannel dags unpause {dag_id}")
    columns = ("run_after", "logical_date", "data_interval_start", "data_interval_end")
    show_rows(rows, form, columns=columns)


@command.command()
@output_option
@pass_session
def report(session: Session, form: str) -> None:
    """Show for each DAG file how long its import took and what it holds."""
    dags: dict[str, list[str]] = {}
    for status in session.store.dags.all():
        dags.setdefault(status.fileloc, []).append(status.dag_id)
    rows = [
        {
            "file": file.path,
            "seconds": file.seconds,
            "dag_count": file.dag_count,
            "dags": sorted(dags.get(file.path, [])),
            "parsed_at": file.parsed_at,
            "error": file.error,
        }
        for file in sorted(session.store.dags.files(), key=lambda file: -file.seconds)
    ]
    empty = "No DAG file was read yet; stannel standalone reads them."
    show_rows(rows, form, columns=("file", "seconds", "dag_count", "dags", "parsed_at"), empty=empty)


@command.command("list-import-errors")
@output_option
@click.pass_context
def list_import_errors(context: click.Context, form: str) -> None:
    """List the DAG files that cannot be imported, and why; exit code 1 when there are any."""
    files = context.ensure_object(Session).store.dags.files()
    rows = [{"file": file.path, "error": file.error, "parsed_at": file.parsed_at} for file in files if file.error]
    if form == "table" and rows:
        for row in rows:
            console().print(str(row["file"]), style="bold")
            console().print(f"{row['error']}\n", style="red", soft_wrap=True)
    else:
        show_rows(rows, form, columns=("file", "error"), empty="Every DAG file can be imported.")
    if rows:
        context.exit(1)


def dag_row(session: Session, status: "DagStatus") -> dict[str, Any]:
    """A DAG as commands show it."""
    spec = session.store.dags.spec(status.version)
    return {
        "dag_id": status.dag_id,
        "display_name": spec.display_name or status.dag_id,
        "description": spec.description,
        "schedule": describe_schedule(spec),
        "timezone": spec.timezone,
        "next_run": _next_start(status),
        "is_paused": status.is_paused,
        "is_active": status.is_active,
        "status": _status(status),
        "fileloc": status.fileloc,
        "tags": list(spec.tags),
        "owners": list(spec.owners),
        "task_count": len(spec.tasks),
    }


def describe_schedule(spec: "DagSpec") -> str:
    """A schedule as its author would write it."""
    return _schedule_in_words(spec.schedule)


def _schedule_in_words(schedule: "AnySchedule") -> str:
    from stannel.model.asset import in_words
    from stannel.model.schedule import Continuous, Cron, Every, Never, OnAssets, Once

    match schedule:
        case Never():
            return "none"
        case Once():
            return "@once"
        case Continuous():
            return "@continuous"
        case Cron(expression=expression):
            return expression
        case Every(seconds=seconds):
            return f"every {timedelta(seconds=seconds)}"
        case OnAssets(condition=condition, time=time):
            also = "" if isinstance(time, Never) else f", {_schedule_in_words(time)}"
            return f"on {in_words(condition)}{also}"


def _next_start(status: "DagStatus") -> datetime | None:
    return status.next_run.run_after if status.next_run and status.is_active and not status.is_paused else None


def _status(status: "DagStatus") -> str:
    if not status.is_active:
        return "gone: its file no longer has it"
    if status.is_broken:
        return "broken: its file cannot be imported"
    if status.is_paused:
        return "paused"
    if status.at_limit and status.next_run:
        return f"late since {moment(status.next_run.run_after)}: max_active_runs is reached"
    return "ok"


def _pause(session: Session, dag_ids: tuple[str, ...], *, paused: bool) -> None:
    # All are looked up first, so that a misspelt one leaves everything as it was.
    known = [session.store.dags.get(dag_id) for dag_id in dag_ids]
    for status in known:
        session.store.dags.pause(status.dag_id, paused=paused)
        state = "paused" if paused else "no longer paused"
        say(f"The DAG {status.dag_id!r} {'was' if status.is_paused is paused else 'is'} {state}.")


def _tree(spec: "DagSpec") -> Any:
    from rich.text import Text
    from rich.tree import Tree

    from stannel.scheduler.graph import Graph

    graph = Graph(spec)
    tree = Tree(Text("tasks", style="bold"))
    branches: dict[str, Any] = {}
    # Each task stands once, below the last of the tasks it waits for; others it waits for are named beside it.
    for task_id in graph.order:
        task = graph.tasks[task_id]
        text = Text(task_id).append(f"  {task.operator}", style="dim")
        if task.mapping is not None:
            text.append(" [mapped]", style="cyan")
        if len(task.upstream) > 1:
            text.append(f"  after {', '.join(task.upstream)}", style="dim")
        parent = max(task.upstream, key=graph.order.index, default=None)
        branches[task_id] = branches.get(parent or "", tree).add(text)
    return tree
