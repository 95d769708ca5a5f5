"""`stannel tasks`: the tasks of DAGs, and how they fare in runs."""

from collections.abc import Callable, Iterable, Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

from stannel.cli.base import Group, Refused, Session, pass_session, say
from stannel.cli.output import console, output_option, show_rows
from stannel.cli.values import JSON_OBJECT, MOMENT, find_run

if TYPE_CHECKING:
    from stannel.cli.waiting import Waiting
    from stannel.model.dag import DagSpec
    from stannel.model.run import Run, TaskInstance

Function = TypeVar("Function", bound=Callable[..., Any])

INSTANCE_COLUMNS = ("task", "state", "try_number", "start_date", "duration", "why")
_UNMAPPED = -1


def form_option(function: Function) -> Function:
    """Let the user choose the form of a log."""
    option = click.option(
        "--output",
        "-o",
        "form",
        type=click.Choice(("text", "json")),
        default="text",
        show_default=True,
        help="Text for people, or the JSON lines as they are.",
    )
    return option(function)


@click.group("tasks", cls=Group)
def command() -> None:
    """List, clear and try out tasks; read their logs.

    RUN is a run id, a logical date, or `latest`, which is also meant when it is left out.

    \b
    Examples:
      stannel tasks list my_dag --run latest       how each task stands, and what it waits for
      stannel tasks logs my_dag my_task --follow
      stannel tasks clear my_dag my_task --downstream
      stannel tasks test my_dag my_task            run it alone, record nothing
    """


@command.command("list")
@click.argument("dag_id", metavar="DAG")
@click.option("--run", metavar="RUN", help="Show how the tasks stand in this run.")
@output_option
@pass_session
def list_(session: Session, dag_id: str, run: str | None, form: str) -> None:
    """List the tasks of a DAG, or with --run how they stand and what they wait for."""
    if run is not None:
        rows = instance_rows(session, find_run(session, dag_id, run))
        show_rows(rows, form, columns=INSTANCE_COLUMNS, empty="The run has no tasks.")
        return
    spec = session.store.dags.spec(session.store.dags.get(dag_id).version)
    rows = [
        {
            "task_id": task.task_id,
            "operator": task.operator,
            "upstream": list(task.upstream),
            "trigger_rule": str(task.trigger_rule),
            "retries": task.retry.retries,
            "pool": task.pool,
            "is_mapped": task.mapping is not None,
        }
        for task in spec.tasks
    ]
    columns = ("task_id", "operator", "upstream", "trigger_rule", "retries", "pool", "is_mapped")
    show_rows(rows, form, columns=columns, empty=f"The DAG {dag_id!r} has no tasks.")


@command.command()
@click.argument("dag_id", metavar="DAG")
@click.argument("task_id", metavar="TASK")
@click.argument("run", required=False)
@click.option("--map-index", type=click.IntRange(min=0), help="Which instance of a mapped task.")
@click.option("--set", "new", type=click.Choice(("success", "failed", "skipped")), help="Set the state by hand.")
@output_option
@click.pass_context
def state(
    context: click.Context,
    *,
    dag_id: str,
    task_id: str,
    run: str | None,
    map_index: int | None,
    new: str | None,
    form: str,
) -> None:
    """Show the state of a task in a run and what it waits for; exit code 1 when it has failed."""
    from stannel.model.states import FAILURES, TaskState

    session = context.ensure_object(Session)
    found = find_run(session, dag_id, run)
    instances = find_instances(session, found, task_id, map_index)
    if new is not None:
        pks = [one.pk for one in instances]
        changed = session.store.tasks.set_state(found, pks, TaskState(new), now=session.now())
        say(f"{changed} instances of {task_id!r} are {new} now.")
        return
    rows = [row for row in instance_rows(session, found) if row["task"] in {label(one) for one in instances}]
    if form == "table":
        for row in rows:
            name = f"{row['task']}: " if len(rows) > 1 else ""
            why = f" ({row['why']})" if row["why"] else ""
            click.echo(f"{name}{row['state']}{why}")
    else:
        show_rows(rows, form, columns=INSTANCE_COLUMNS)
    if any(one.state in FAILURES for one in instances):
        context.exit(1)


@command.command()
@click.argument("dag_id", metavar="DAG")
@click.argument("task_id", metavar="TASK")
@click.argument("run", required=False)
@click.option("--map-index", type=click.IntRange(min=0), help="Which instance of a mapped task.")
@click.option("--try", "try_number", type=click.IntRange(min=1), help="Which try; otherwise the latest.")
@click.option("--follow", "-f", is_flag=True, help="Go on printing until the task has ended.")
@form_option
@pass_session
def logs(
    session: Session,
    *,
    dag_id: str,
    task_id: str,
    run: str | None,
    map_index: int | None,
    try_number: int | None,
    follow: bool,
    form: str,
) -> None:
    """Print what a task wrote, and the triggers it waited for, in one order; and how it went."""
    found = find_run(session, dag_id, run)
    instances = find_instances(session, found, task_id, map_index)
    if len(instances) > 1:
        raise Refused(f"{task_id!r} has {len(instances)} instances in this run; choose one with --map-index.")
    if follow:
        follow_log(session, found, instances[0], try_number, form)
    else:
        print_log(session, found, instances[0], try_number, form)


def print_log(session: Session, run: "Run", instance: "TaskInstance", try_number: int | None, form: str) -> None:
    """Print the log of a try, otherwise of the latest one, as far as it is written."""
    from stannel.cli import logs as files

    if try_number is None and not instance.try_number:
        why = next((row["why"] for row in instance_rows(session, run) if row["task"] == label(instance)), None)
        raise Refused(f"{instance.task_id!r} has not started yet{f': {why}' if why else ''}.")
    number = try_number or instance.try_number
    path = files.path_of(session.settings.logging.base_log_folder, run, instance, number)
    if not path.exists():
        raise Refused(f"There is no log of try {number} at {path}; the task wrote none, or ran on another machine.")
    print_lines(files.read_lines(path), form)


def follow_log(session: Session, run: "Run", instance: "TaskInstance", try_number: int | None, form: str) -> None:
    """Print the log of a try while it grows, otherwise of this and all later tries, until the task has ended."""
    from stannel.cli import logs as files
    from stannel.model.states import TASK_ENDS

    folder = session.settings.logging.base_log_folder
    number = try_number or max(instance.try_number, 1)
    while True:
        path = files.path_of(folder, run, instance, number)

        def is_over(number: int = number) -> bool:
            current = _reload(session, run, instance)
            return current.state in TASK_ENDS or current.try_number > number

        for line in files.follow(path, is_over):
            print_lines([line], form)
        current = _reload(session, run, instance)
        if try_number is not None or current.state in TASK_ENDS:
            return
        number = current.try_number


def print_lines(lines: Iterable[str], form: str = "text") -> None:
    """Print lines of a log file, for people or as they are."""
    if form == "json":
        for line in lines:
            click.echo(line)
        return
    from stannel.cli.logs import print_for_people

    print_for_people(lines, console())


@command.command()
@click.argument("dag_id", metavar="DAG")
@click.argument("task_ids", metavar="[TASK]...", nargs=-1)
@click.option("--run", metavar="RUN", help="In which run; otherwise the latest.")
@click.option("--map-index", type=click.IntRange(min=0), help="Only this instance of a mapped task.")
@click.option("--only-failed", is_flag=True, help="Only tasks that failed, or did not run because others failed.")
@click.option("--downstream", is_flag=True, help="Also everything after the tasks.")
@click.option("--upstream", is_flag=True, help="Also everything before the tasks.")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@pass_session
def clear(
    session: Session,
    *,
    dag_id: str,
    task_ids: tuple[str, ...],
    run: str | None,
    map_index: int | None,
    only_failed: bool,
    downstream: bool,
    upstream: bool,
    yes: bool,
) -> None:
    """Run tasks again as if they had not run; without TASK, all tasks of the run."""
    from stannel.model.states import FAILURES

    found = find_run(session, dag_id, run)
    spec = session.store.dags.spec(found.version)
    wanted = _with_neighbours(spec, task_ids, downstream=downstream, upstream=upstream)
    chosen = [
        one
        for one in session.store.tasks.of_run(found)
        if one.task_id in wanted
        and (map_index is None or one.map_index == map_index or one.task_id not in task_ids)
        and (not only_failed or one.state in FAILURES)
    ]
    if not chosen:
        say("There is nothing to clear.")
        return
    if not yes:
        for one in chosen:
            say(f"  {label(one)} ({one.state})")
        click.confirm(f"Clear these {len(chosen)} tasks of {found.run_id!r}?", abort=True, err=True)
    cleared = session.store.tasks.clear(found, [one.pk for one in chosen], now=session.now())
    say(f"{cleared} tasks of {found.run_id!r} are cleared and will run again.")


@command.command()
@click.argument("dag_id", metavar="DAG")
@click.argument("task_id", metavar="TASK")
@click.option("--map-index", type=click.IntRange(min=0), help="Which instance of a mapped task.")
@click.option("--logical-date", type=MOMENT, metavar="DATE", help="The date the task believes in; otherwise now.")
@click.option("--conf", type=JSON_OBJECT, default="{}", metavar="JSON", help="Values for the run; @FILE reads them.")
@click.pass_context
def test(context: click.Context, /, **given: Any) -> None:
    """Run one task without its dependencies, print its log, record nothing."""
    from stannel.cli.trial import test_task

    context.exit(0 if test_task(context.ensure_object(Session), **given) else 1)


def find_instances(session: Session, run: "Run", task_id: str, map_index: int | None) -> "list[TaskInstance]":
    """The instances of a task in a run; an unknown task or map index is refused with the nearest ones."""
    from stannel.errors import UnknownId, closest

    instances = session.store.tasks.of_run(run)
    known = {one.task_id for one in instances}
    if task_id not in known:
        raise UnknownId(f"task of {run.dag_id!r}", task_id, closest(task_id, known))
    found = [one for one in instances if one.task_id == task_id]
    if map_index is None:
        return found
    chosen = [one for one in found if one.map_index == map_index]
    if not chosen:
        raise UnknownId(f"instance of {task_id!r}", f"[{map_index}]")
    return chosen


def instance_rows(session: Session, run: "Run", waiting: "Waiting | None" = None) -> list[dict[str, Any]]:
    """The task instances of a run in the author's order, each with what it waits for."""
    from stannel.cli.waiting import Waiting

    why = waiting or Waiting(session.store, session.settings, run, session.now())
    now = session.now()
    places = {task.task_id: place for place, task in enumerate(session.store.dags.spec(run.version).tasks)}
    instances = session.store.tasks.of_run(run)
    instances.sort(key=lambda one: (places.get(one.task_id, len(places)), one.map_index))
    return [_instance_row(one, why.task(one), now) for one in instances]


def label(one: "TaskInstance") -> str:
    """How people name an instance: `task` or `task[3]`."""
    return one.task_id if one.map_index == _UNMAPPED else f"{one.task_id}[{one.map_index}]"


def _instance_row(one: "TaskInstance", why: str | None, now: datetime) -> dict[str, Any]:
    running = one.start_date is not None and (one.end_date is not None or str(one.state) == "running")
    seconds = ((one.end_date or now) - one.start_date).total_seconds() if running and one.start_date else None
    return {
        "task": label(one),
        "task_id": one.task_id,
        "map_index": one.map_index,
        "state": str(one.state),
        "why": why,
        "try_number": one.try_number,
        "max_tries": one.max_tries,
        "operator": one.operator,
        "pool": one.pool,
        "queue": one.queue,
        "scheduled_at": one.scheduled_at,
        "queued_at": one.queued_at,
        "start_date": one.start_date,
        "end_date": one.end_date,
        "retry_at": one.retry_at,
        "duration": seconds,
    }


def _reload(session: Session, run: "Run", instance: "TaskInstance") -> "TaskInstance":
    return next((one for one in session.store.tasks.of_run(run) if one.pk == instance.pk), instance)


def _with_neighbours(spec: "DagSpec", task_ids: tuple[str, ...], *, downstream: bool, upstream: bool) -> set[str]:
    from stannel.errors import UnknownId, closest
    from stannel.scheduler.graph import Graph

    graph = Graph(spec)
    for task_id in task_ids:
        if task_id not in graph.tasks:
            raise UnknownId(f"task of {spec.dag_id!r}", task_id, closest(task_id, graph.tasks))
    if not task_ids:
        return set(graph.tasks)
    wanted = set(task_ids)
    if downstream:
        wanted |= _reachable(task_ids, graph.downstream)
    if upstream:
        wanted |= _reachable(task_ids, graph.upstream)
    return wanted


def _reachable(task_ids: Iterable[str], edges: Mapping[str, Iterable[str]]) -> set[str]:
    reached, frontier = set[str](), list(task_ids)
    while frontier:
        fresh = set(edges.get(frontier.pop(), ())) - reached
        reached |= fresh
        frontier.extend(fresh)
    return reached
