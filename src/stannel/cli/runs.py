"""`stannel runs`: the runs of all DAGs."""

from typing import TYPE_CHECKING, Any

import click

from stannel.cli.base import Group, Session, pass_session, say
from stannel.cli.output import console, output_option, show_one, show_rows
from stannel.cli.values import find_run

if TYPE_CHECKING:
    from stannel.model.run import Run

RUN_STATES = ("queued", "running", "success", "failed")
_COLUMNS = ("dag_id", "run_id", "state", "run_type", "start_date", "duration", "note")


@click.group("runs", cls=Group)
def command() -> None:
    """List, show, change and delete runs.

    RUN is a run id, a logical date, or `latest`, which is also meant when it is left out.

    \b
    Examples:
      stannel runs list --dag my_dag --state failed
      stannel runs show my_dag latest
      stannel runs state my_dag && echo "the latest run is well"
    """


@command.command("list")
@click.option("--dag", "dag_id", metavar="DAG", help="Only the runs of this DAG.")
@click.option("--state", type=click.Choice(RUN_STATES), help="Only runs in this state.")
@click.option("--limit", type=click.IntRange(min=1), default=25, show_default=True, help="So many of the newest.")
@output_option
@pass_session
def list_(session: Session, dag_id: str | None, state: str | None, limit: int, form: str) -> None:
    """List runs, the newest first."""
    from stannel.model.states import RunState

    if dag_id is not None:
        session.store.dags.get(dag_id)
    runs = session.store.runs.latest(dag_id=dag_id, state=RunState(state) if state else None, limit=limit)
    rows = [run_row(session, run) for run in runs]
    show_rows(rows, form, columns=_COLUMNS, empty="No such runs. Start one with: stannel dags trigger DAG")


@command.command()
@click.argument("dag_id", metavar="DAG")
@click.argument("run", required=False)
@output_option
@pass_session
def show(session: Session, dag_id: str, run: str | None, form: str) -> None:
    """Show a run, its tasks, and what it is waiting for."""
    from stannel.cli.tasks import INSTANCE_COLUMNS, instance_rows
    from stannel.cli.waiting import Waiting

    found = find_run(session, dag_id, run)
    waiting = Waiting(session.store, session.settings, found, session.now())
    row = {**run_row(session, found), "waiting_for": waiting.run()}
    tasks = instance_rows(session, found, waiting)
    if form == "table":
        show_one(row, form)
        console().print()
        show_rows(tasks, form, columns=INSTANCE_COLUMNS, empty="The run has no tasks.")
    else:
        show_one({**row, "tasks": tasks}, form)


@command.command()
@click.argument("dag_id", metavar="DAG")
@click.argument("run", required=False)
@click.option("--set", "new", type=click.Choice(("success", "failed")), help="End the run so; its open tasks stop.")
@click.pass_context
def state(context: click.Context, dag_id: str, run: str | None, new: str | None) -> None:
    """Print the state of a run, or end it with --set; exit code 1 when the run has failed."""
    show_state(context, dag_id, run, new)


def show_state(context: click.Context, dag_id: str, run: str | None, new: str | None = None) -> None:
    """Print a run's state; a failed run gives exit code 1, unless failing it was what the user asked for."""
    from stannel.model.states import RunState

    session = context.ensure_object(Session)
    found = find_run(session, dag_id, run)
    if new is not None:
        session.store.runs.set_state(found, RunState(new), now=session.now())
        say(f"The run {found.run_id!r} of {dag_id!r} is {new} now.")
        return
    click.echo(str(found.state))
    if found.state is RunState.FAILED:
        context.exit(1)


@command.command()
@click.argument("dag_id", metavar="DAG")
@click.argument("run")
@click.option("--yes", "-y", is_flag=True, help="Do not ask.")
@pass_session
def delete(session: Session, dag_id: str, run: str, yes: bool) -> None:
    """Delete a run with its tasks and XComs; logs stay."""
    from stannel.model.states import RUN_ENDS

    found = find_run(session, dag_id, run)
    if not yes:
        going = "" if found.state in RUN_ENDS else f", which is {found.state}"
        click.confirm(f"Delete the run {found.run_id!r} of {dag_id!r}{going}?", abort=True, err=True)
    session.store.runs.delete(found)
    say(f"The run {found.run_id!r} of {dag_id!r} is deleted.")


def run_row(session: Session, run: "Run") -> dict[str, Any]:
    """A run as commands show it."""
    ended = run.end_date or session.now()
    seconds = (ended - run.start_date).total_seconds() if run.start_date else None
    return {
        "dag_id": run.dag_id,
        "run_id": run.run_id,
        "state": str(run.state),
        "run_type": str(run.run_type),
        "logical_date": run.logical_date,
        "data_interval_start": run.data_interval_start,
        "data_interval_end": run.data_interval_end,
        "run_after": run.run_after,
        "queued_at": run.queued_at,
        "start_date": run.start_date,
        "end_date": run.end_date,
        "duration": seconds,
        "conf": run.conf,
        "triggered_by": run.triggered_by,
        "note": run.note,
    }
