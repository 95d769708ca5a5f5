"""DAG files written for Apache Airflow, loaded and run through the shim."""

import importlib
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from support.memory_channel import MemoryChannel, run

from stannel import sdk
from stannel.compat import airflow as shim
from stannel.sdk.compile import compile_dag
from stannel.sdk.load import load_dags

CLASSIC = """
from datetime import datetime, timedelta

from airflow import DAG
from airflow.models import Variable
from airflow.models.baseoperator import chain
from airflow.operators.bash import BashOperator
from airflow.operators.empty import EmptyOperator
from airflow.operators.python import BranchPythonOperator, PythonOperator
from airflow.utils.edgemodifier import Label
from airflow.utils.task_group import TaskGroup
from airflow.utils.trigger_rule import TriggerRule

with DAG(
    dag_id="classic",
    start_date=datetime(2026, 1, 1),
    schedule="0 6 * * *",
    catchup=False,
    default_args={"owner": "data", "retries": 2, "retry_delay": timedelta(minutes=1)},
    tags=["old"],
) as dag:
    start = EmptyOperator(task_id="start")
    choose = BranchPythonOperator(task_id="choose", python_callable=lambda: "work.shell")
    with TaskGroup("work") as work:
        shell = BashOperator(task_id="shell", bash_command="echo {{ ds }}")
        python = PythonOperator(task_id="python", python_callable=lambda **context: context["ds"])
    end = EmptyOperator(task_id="end", trigger_rule=TriggerRule.NONE_FAILED_MIN_ONE_SUCCESS)
    chain(start, choose)
    choose >> Label("both") >> [shell, python] >> end
"""

MODERN = """
import pendulum_is_not_needed
from airflow.sdk import DAG, Param, dag, get_current_context, task, task_group
from airflow.sdk.exceptions import AirflowSkipException
from airflow.providers.standard.operators.bash import BashOperator


@dag(schedule="@daily", params={"limit": Param(3, type="integer")})
def modern():
    @task
    def numbers(params=None):
        return list(range(params["limit"]))

    @task
    def double(x):
        if x == 1:
            raise AirflowSkipException("odd")
        return 2 * x

    @task
    def total(values):
        return sum(values)

    total(double.expand(x=numbers())) >> BashOperator(task_id="say", bash_command="echo {{ run_id }}")


modern()
""".replace("import pendulum_is_not_needed\n", "")


@pytest.fixture(autouse=True)
def _shim() -> None:
    shim.install()


def load(tmp_path: Path, source: str) -> Any:
    file = tmp_path / "dag_file.py"
    file.write_text(source)
    (dag,) = load_dags(file, tmp_path).dags.values()
    return dag


def test_a_classic_dag_file_compiles_as_its_author_meant_it(tmp_path: Path) -> None:
    spec = compile_dag(load(tmp_path, CLASSIC), fileloc="dag_file.py")
    tasks = {task.task_id: task for task in spec.tasks}
    assert list(tasks) == ["start", "choose", "work.shell", "work.python", "end"]
    assert tasks["end"].upstream == ("work.python", "work.shell")
    assert tasks["end"].trigger_rule == "none_failed_min_one_success"
    assert (tasks["start"].owner, tasks["start"].retry.retries, tasks["start"].retry.delay) == ("data", 2, 60)


def test_a_classic_dag_runs(tmp_path: Path) -> None:
    dag, channel = load(tmp_path, CLASSIC), MemoryChannel()
    for task_id in ("choose", "work.shell", "work.python"):
        run(dag, task_id, channel)
    assert channel.returned("work.shell") == channel.returned("work.python") == "2026-11-15"


def test_a_modern_dag_runs(tmp_path: Path) -> None:
    dag, channel = load(tmp_path, MODERN), MemoryChannel()
    run(dag, "numbers", channel)
    states = [run(dag, "double", channel, map_index=index).state for index in range(3)]
    run(dag, "total", channel)
    assert states == ["success", "skipped", "success"]
    assert channel.returned("total") == 4


def test_every_offered_name_can_be_imported() -> None:
    for line in shim.offered():
        module, _, name = line.partition(":")
        assert getattr(importlib.import_module(module), name) is not None


def test_names_are_stannels_own_objects() -> None:
    import airflow.sdk
    from airflow.models import DAG, Variable

    assert DAG is sdk.DAG
    assert Variable is sdk.Variable
    assert set(sdk.__all__) <= set(airflow.sdk.__all__)


def test_the_version_is_one_that_packages_can_compare() -> None:
    import airflow
    from airflow.version import version

    assert airflow.__version__ == version
    assert tuple(map(int, version.split("."))) >= (3, 0, 0)


@pytest.mark.parametrize(
    "statement",
    [
        "from airflow.sdk import NoSuchThing",
        "import airflow.no_such_module",
        "from airflow.providers.nothing.hooks import Hook",
        "import airflow; airflow.no_such_name",
    ],
)
def test_an_unknown_name_says_that_it_is_not_offered(statement: str) -> None:
    with pytest.raises((ImportError, AttributeError), match=r"Stannel does not offer airflow.*yet.*offered\(\)"):
        exec(statement)


def test_asking_whether_a_name_exists_is_not_an_error() -> None:
    import airflow

    assert not hasattr(airflow, "no_such_name")
    assert getattr(airflow, "no_such_name", 3) == 3


def test_an_installed_provider_package_is_found_beside_the_shim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "airflow" / "providers" / "acme"
    package.mkdir(parents=True)
    (package / "__init__.py").write_text("")
    (package / "hooks.py").write_text("from airflow.sdk import BaseHook\nclass AcmeHook(BaseHook): pass\n")
    script = (
        "from stannel.compat import airflow as shim\n"
        "assert not shim.airflow_is_installed()\n"
        "assert shim.install_if_absent()\n"
        "from airflow.providers.acme.hooks import AcmeHook\n"
        "from airflow.providers.standard.operators.bash import BashOperator\n"
        "print(AcmeHook.__name__)\n"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("AcmeHook\n", "")


def test_a_real_airflow_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "airflow").mkdir()
    (tmp_path / "airflow" / "__init__.py").write_text("real = True\n")
    script = (
        "from stannel.compat import airflow as s; print(s.install_if_absent()); import airflow; print(airflow.real)"
    )
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
    assert (done.stdout, done.stderr) == ("False\nTrue\n", "")


def test_variables_and_connections_of_the_airflow_environment_are_read(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIRFLOW_VAR_CITY", "Bern")
    monkeypatch.setenv("AIRFLOW_CONN_DB", "postgres://u:p@h:5432/s")
    assert sdk.Variable.get("city") == "Bern"
    assert sdk.BaseHook.get_connection("db").port == 5432


def test_assets_are_found_where_old_and_new_files_look_for_them() -> None:
    from airflow.datasets import Dataset as OldDataset
    from airflow.providers.common.compat.assets import Asset as ProviderAsset
    from airflow.sdk import Asset, AssetWatcher, Metadata, asset
    from airflow.sdk.definitions.asset import AssetNameRef, AssetUniqueKey
    from airflow.timetables.assets import AssetOrTimeSchedule
    from airflow.timetables.datasets import DatasetOrTimeSchedule

    assert Asset is ProviderAsset is sdk.Asset
    assert issubclass(OldDataset, Asset)
    assert DatasetOrTimeSchedule is AssetOrTimeSchedule is sdk.AssetOrTimeSchedule
    assert isinstance(Asset.ref(name="a"), AssetNameRef)
    assert AssetUniqueKey("a", "b").uri == "b"
    assert (AssetWatcher, Metadata, asset) == (sdk.AssetWatcher, sdk.Metadata, sdk.asset)
