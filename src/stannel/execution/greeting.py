"""What an attempt is told before it asks anything."""

from collections.abc import Sequence
from typing import Any

from msgspec import UNSET

from stannel.execution.asset_answers import consumed
from stannel.model.asset import ConsumedEvent
from stannel.model.run import Attempt, Run
from stannel.protocol.data import BundleInfo, DagRun, TaskInstance, TIRunContext
from stannel.protocol.replies import StartupDetails

_BUNDLE = BundleInfo(name="dags-folder")


def greeting(attempt: Attempt, *, hostname: str, callback: dict[str, Any] | None = None) -> StartupDetails:
    """The first message to the attempt's process. With `callback`, it runs that instead of the task."""
    return StartupDetails(
        ti=TaskInstance(
            id=attempt.attempt_id,
            task_id=attempt.task_id,
            dag_id=attempt.dag_id,
            run_id=attempt.run_id,
            try_number=attempt.try_number,
            dag_version_id=attempt.run.version,
            map_index=attempt.map_index,
            hostname=hostname,
            queue=attempt.queue,
        ),
        dag_rel_path=attempt.fileloc,
        bundle_info=_BUNDLE,
        start_date=attempt.start_date,
        ti_context=TIRunContext(
            dag_run=dag_run_of(attempt.run, attempt.events),
            max_tries=attempt.max_tries,
            should_retry=attempt.should_retry,
            task_reschedule_count=attempt.reschedule_count,
            next_method=attempt.next_method,
            next_kwargs=attempt.next_kwargs,
            start_date=attempt.first_start_date,
            stannel=UNSET if callback is None else {"callback": callback},
        ),
    )


def dag_run_of(run: Run, events: Sequence[ConsumedEvent] = ()) -> DagRun:
    """The run, and the events that it consumed, in the words of the wire."""
    return DagRun(
        dag_id=run.dag_id,
        run_id=run.run_id,
        logical_date=run.logical_date,
        data_interval_start=run.data_interval_start,
        data_interval_end=run.data_interval_end,
        run_after=run.run_after,
        start_date=run.start_date,
        end_date=run.end_date,
        clear_number=run.clear_number,
        run_type=run.run_type,
        state=run.state,
        conf=run.conf,
        triggering_user_name=run.triggered_by,
        consumed_asset_events=consumed(events),
        partition_key=run.partition_key,
        note=run.note,
    )
