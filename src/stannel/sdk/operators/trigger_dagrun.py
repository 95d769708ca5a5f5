"""A task that starts a run of another DAG, and waits for its end if asked to."""

import json
import time
from collections.abc import Iterable, Sequence
from datetime import datetime, timedelta
from typing import Any, ClassVar, NoReturn

from stannel.model.ids import run_id_for
from stannel.model.run import RunType
from stannel.model.states import RunState
from stannel.protocol.requests import GetDag, GetDagRunState, TriggerDagRun
from stannel.sdk import comms, timezone
from stannel.sdk.deferral import built_in, is_deferrable_by_default
from stannel.sdk.exceptions import (
    AirflowException,
    AirflowFailException,
    AirflowRuntimeError,
    AirflowSkipException,
    DagNotFound,
    DagRunAlreadyExists,
)
from stannel.sdk.notset import NOTSET, is_arg_set
from stannel.sdk.operator import BaseOperator

# Where the id of the run that was started is left.
XCOM_RUN_ID = "trigger_run_id"


class TriggerDagRunOperator(BaseOperator):
    """Starts a run of `trigger_dag_id`; its run id is left as the XCom `trigger_run_id`.

    The run is about now, about the given `logical_date`, or about no date at all if that is None.
    """

    template_fields: Sequence[str] = ("trigger_dag_id", "trigger_run_id", "logical_date", "conf", "note")
    ui_color = "#ffefeb"
    trigger_module: ClassVar[str] = "external_task"

    def __init__(
        self,
        *,
        trigger_dag_id: str,
        trigger_run_id: str | None = None,
        conf: dict[str, Any] | None = None,
        logical_date: Any = NOTSET,
        reset_dag_run: bool = False,
        wait_for_completion: bool = False,
        poke_interval: timedelta | float = 60,
        allowed_states: Iterable[str] | None = None,
        failed_states: Iterable[str] | None = None,
        skip_when_already_exists: bool = False,
        fail_when_dag_is_paused: bool = False,
        note: str | None = None,
        deferrable: bool | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        self.deferrable = is_deferrable_by_default() if deferrable is None else deferrable
        self.trigger_dag_id, self.trigger_run_id, self.conf = trigger_dag_id, trigger_run_id, conf
        self.logical_date, self.note = logical_date, note
        self.reset_dag_run, self.wait_for_completion = reset_dag_run, wait_for_completion
        self.poke_interval = poke_interval.total_seconds() if isinstance(poke_interval, timedelta) else poke_interval
        self.allowed_states = self._states("allowed_states", allowed_states, RunState.SUCCESS)
        self.failed_states = self._states("failed_states", failed_states, RunState.FAILED)
        self.skip_when_already_exists = skip_when_already_exists
        self.fail_when_dag_is_paused = fail_when_dag_is_paused

    def _states(self, name: str, given: Iterable[str] | None, default: RunState) -> frozenset[RunState]:
        return frozenset(self._one_of(name, RunState, one) for one in ([default] if given is None else given))

    def execute(self, context: Any) -> None:
        moment = self._moment()
        run_id = self.trigger_run_id or run_id_for(RunType.MANUAL, moment or timezone.utcnow())
        if self.fail_when_dag_is_paused and self._ask(GetDag(self.trigger_dag_id)).is_paused:
            raise AirflowFailException(f"The DAG {self.trigger_dag_id!r} is paused, so its run would not start.")
        self._start(run_id, moment)
        context["ti"].xcom_push(key=XCOM_RUN_ID, value=run_id)
        if not self.wait_for_completion:
            return
        if self.deferrable:
            self._defer_until_over(run_id)
        self._wait_for(run_id)

    def _defer_until_over(self, run_id: str) -> NoReturn:
        trigger = built_in("external_task", "DagStateTrigger")(
            dag_id=self.trigger_dag_id,
            states=[*sorted(self.allowed_states), *sorted(self.failed_states)],
            run_ids=[run_id],
            poll_interval=self.poke_interval,
        )
        self.defer(trigger=trigger, method_name="execute_complete", kwargs={"run_id": run_id})

    def execute_complete(self, context: Any, run_id: str, event: Any = None) -> None:
        """The run is over, or was and has been cleared since: then it is waited for once more."""
        if not self._is_over(run_id):
            self._defer_until_over(run_id)

    def _moment(self) -> datetime | None:
        if not is_arg_set(self.logical_date):
            return timezone.utcnow()
        if self.logical_date is None or self.logical_date == "None":
            return None
        return timezone.as_moment(self.logical_date, self.dag.timezone)

    def _start(self, run_id: str, moment: datetime | None) -> None:
        try:
            json.dumps(self.conf)
        except (TypeError, ValueError) as error:
            raise AirflowException(f"conf cannot travel to the other DAG's run as JSON: {error}") from None
        request = TriggerDagRun(
            dag_id=self.trigger_dag_id,
            run_id=run_id,
            logical_date=moment,
            conf=self.conf,
            reset_dag_run=self.reset_dag_run,
            note=self.note,
        )
        try:
            self._ask(request)
        except AirflowRuntimeError as error:
            if error.error != "DAGRUN_ALREADY_EXISTS":
                raise
            if self.skip_when_already_exists:
                raise AirflowSkipException(f"The run {run_id!r} of {self.trigger_dag_id!r} is there already.") from None
            raise DagRunAlreadyExists(self.trigger_dag_id, run_id) from None
        self.log.info("Started the run %s of %s", run_id, self.trigger_dag_id)

    def _wait_for(self, run_id: str) -> None:
        while not self._is_over(run_id):
            self.log.info("Looking again in %g s", self.poke_interval)
            time.sleep(self.poke_interval)

    def _is_over(self, run_id: str) -> bool:
        state = RunState(self._ask(GetDagRunState(self.trigger_dag_id, run_id)).state)
        if state in self.failed_states:
            raise AirflowException(f"The run {run_id!r} of {self.trigger_dag_id!r} is {state}.")
        self.log.info("The run %s is %s", run_id, state)
        return state in self.allowed_states

    def _ask(self, request: GetDag | GetDagRunState | TriggerDagRun) -> Any:
        try:
            return comms.ask(request)
        except AirflowRuntimeError as error:
            if (error.detail or {}).get("status_code") != 404:
                raise
            raise DagNotFound(f"{error} There is nothing to start or to wait for.") from None
