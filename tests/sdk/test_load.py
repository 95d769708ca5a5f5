"""Importing DAG files."""

import sys
from pathlib import Path

import pytest

from stannel.errors import DagInvalid, ImportFailed
from stannel.sdk.load import LoadedFile, load_dags, module_name

HEAD = "from stannel.sdk import DAG, dag, task\n"
TWICE = """from stannel.sdk import DAG
from stannel.sdk.operators import EmptyOperator
with DAG("d"):
    EmptyOperator(task_id="a")
    EmptyOperator(task_id="a")
"""


def load(folder: Path, source: str, name: str = "dag_file.py") -> LoadedFile:
    (folder / name).write_text(source)
    return load_dags(folder / name, folder)


def test_dags_are_found_whether_or_not_they_are_assigned(tmp_path: Path) -> None:
    loaded = load(
        tmp_path,
        HEAD
        + """
assigned = DAG("assigned")
with DAG("opened"):
    pass

@dag
def called():
    pass

called()

@dag
def never_called():
    pass

with DAG("hidden", auto_register=False):
    pass

def factory(name):
    with DAG(name):
        pass

for number in range(2):
    factory(f"made_{number}")
""",
    )
    assert sorted(loaded.dags) == ["assigned", "called", "made_0", "made_1", "opened"]
    assert all(dag.fileloc == str(tmp_path / "dag_file.py") for dag in loaded.dags.values())


def test_two_dags_of_one_id_in_a_file_are_refused(tmp_path: Path) -> None:
    with pytest.raises(DagInvalid, match="two DAGs with this id") as caught:
        load(tmp_path, HEAD + "a = DAG('same')\nb = DAG('same')\n")
    assert caught.value.file == str(tmp_path / "dag_file.py")


def test_modules_of_the_folder_are_dependencies_and_keep_their_own_dags(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", sys.path[:])
    (tmp_path / "load_test_helper.py").write_text(
        HEAD + "def build(name):\n    with DAG(name) as made:\n        pass\n    return made\n"
    )
    (tmp_path / "load_test_other.py").write_text(HEAD + "with DAG('theirs') as theirs:\n    pass\n")
    try:
        loaded = load(
            tmp_path,
            "from load_test_helper import build\nfrom load_test_other import theirs\nbuild('mine')\n",
        )
    finally:
        for name in ("load_test_helper", "load_test_other"):
            sys.modules.pop(name, None)
    assert list(loaded.dags) == ["mine"]
    assert [path.name for path in loaded.dependencies] == ["load_test_helper.py", "load_test_other.py"]


@pytest.mark.parametrize(
    ("source", "reason"),
    [
        ("x = 1\ny = 1 / 0\n", "line 2: ZeroDivisionError: division by zero"),
        ("def f(:\n", "line 1: invalid syntax"),
        ("import no_such_module_anywhere\n", "line 1: ModuleNotFoundError: No module named 'no_such_module_anywhere'"),
        ("import sys\n\nsys.exit(3)\n", "line 3: SystemExit: 3"),
        (
            TWICE,
            "line 5: The DAG 'd'",
        ),
    ],
)
def test_what_goes_wrong_names_the_file_and_the_authors_line(tmp_path: Path, source: str, reason: str) -> None:
    with pytest.raises(ImportFailed) as caught:
        load(tmp_path, source)
    assert caught.value.file == str(tmp_path / "dag_file.py")
    assert caught.value.reason.startswith(reason)
    assert module_name(tmp_path / "dag_file.py") not in sys.modules


def test_a_broken_file_leaves_nothing_open_for_the_next(tmp_path: Path) -> None:
    with pytest.raises(ImportFailed):
        load(tmp_path, HEAD + "with DAG('open'):\n    raise ValueError\n")
    loaded = load(
        tmp_path, HEAD + "from stannel.sdk.building import current_dag\nassert current_dag() is None\nDAG('x')\n"
    )
    assert loaded.dags == {}


def test_the_module_name_is_the_same_everywhere_and_differs_by_folder(tmp_path: Path) -> None:
    one, other = tmp_path / "a" / "my-dag.py", tmp_path / "b" / "my-dag.py"
    assert module_name(one) == module_name(one)
    assert module_name(one) != module_name(other)
    assert module_name(one).isidentifier()


def test_a_file_can_be_loaded_again_after_a_change(tmp_path: Path) -> None:
    assert list(load(tmp_path, HEAD + "a = DAG('before')\n").dags) == ["before"]
    assert list(load(tmp_path, HEAD + "a = DAG('after_it')\n").dags) == ["after_it"]
