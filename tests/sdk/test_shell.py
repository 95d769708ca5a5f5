"""When the means to run commands are loaded."""

import subprocess
import sys

import pytest

PROGRAM = """
import sys
from stannel.runner.execute import preload
from stannel.sdk import DAG, task
from stannel.sdk.operators.bash import BashOperator
with DAG("d", schedule=None) as dag:
    {task}
preload({{"d": dag}})
print("stannel.sdk.shell" in sys.modules)
"""


@pytest.mark.parametrize(
    ("task", "loaded"),
    [
        ("task(task_id='t')(lambda: None)()", "False"),
        ("BashOperator(task_id='t', bash_command='true')", "True"),
        ("BashOperator.partial(task_id='t').expand(bash_command=['true'])", "True"),
    ],
)
def test_only_files_with_bash_tasks_load_it_and_before_the_fork(task: str, loaded: str):
    done = subprocess.run([sys.executable, "-c", PROGRAM.format(task=task)], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == loaded
