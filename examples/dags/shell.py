"""Shell commands with templates, a task that needs a second try, and a clean-up that always runs."""

from datetime import timedelta

from stannel.sdk import DAG, task, timezone
from stannel.sdk.operators import BashOperator

with DAG(
    "shell",
    schedule=timedelta(hours=6),
    start_date=timezone.datetime(2026, 1, 1),
    is_paused_upon_creation=True,
    default_args={"retries": 2, "retry_delay": timedelta(seconds=1)},
    tags=["example"],
):
    prepare = BashOperator(task_id="prepare", bash_command="mktemp --directory")
    write = BashOperator(
        task_id="write",
        bash_command="echo 'data of {{ ds }}' > $FOLDER/data.txt && cat $FOLDER/data.txt",
        env={"FOLDER": prepare.output},
        append_env=True,
    )

    @task(execution_timeout=timedelta(seconds=30))
    def works_at_second_try(ti=None):
        if ti.try_number == 1:
            raise RuntimeError("not yet; the second try will do")
        return "done"

    @task.bash
    def clean_up(folder):
        return f"rm --recursive {folder}"

    cleaning = clean_up(prepare.output)
    write >> works_at_second_try() >> cleaning
    cleaning.as_teardown(setups=prepare)
