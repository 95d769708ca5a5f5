import subprocess
import sys
from datetime import UTC, datetime

import pytest

from stannel.triggers.loading import CodeNotFound, find_object, find_trigger, load_trigger, plain_arguments
from stannel.triggers.temporal import DateTimeTrigger
from stannel.triggers.testing import SuccessTrigger

MOMENT = datetime(2030, 1, 1, tzinfo=UTC)

MODULE = """
from stannel.triggers.testing import SuccessTrigger

class Outer:
    class Inner(SuccessTrigger):
        def __init__(self, plain, secret):
            self.plain, self.secret = plain, secret

class Stranger:
    pass

def function():
    pass
"""


@pytest.fixture
def modules(tmp_path, monkeypatch):
    (tmp_path / "trigger_home").mkdir()
    (tmp_path / "trigger_home" / "__init__.py").touch()
    (tmp_path / "trigger_home" / "good.py").write_text(MODULE)
    (tmp_path / "trigger_home" / "broken.py").write_text("1 / 0")
    (tmp_path / "trigger_home" / "leaving.py").write_text("raise SystemExit(3)")
    (tmp_path / "trigger_home" / "needy.py").write_text("import module_that_nobody_has")
    monkeypatch.syspath_prepend(tmp_path)
    yield
    for name in [name for name in sys.modules if name.startswith("trigger_home")]:
        del sys.modules[name]


def test_a_trigger_is_made_from_its_path_and_arguments():
    trigger = load_trigger("stannel.triggers.temporal.DateTimeTrigger", {"moment": MOMENT})
    assert isinstance(trigger, DateTimeTrigger)
    assert trigger.moment == MOMENT


def test_a_class_inside_a_class_is_found_and_secret_arguments_lose_their_mark(modules):
    trigger = load_trigger("trigger_home.good.Outer.Inner", {"plain": 1, "encrypted__secret": 2})
    assert isinstance(trigger, SuccessTrigger)
    assert (trigger.plain, trigger.secret) == (1, 2)


def test_an_argument_that_is_given_twice_is_refused():
    assert plain_arguments({"encrypted__a": 1, "b": 2}) == {"a": 1, "b": 2}
    with pytest.raises(TypeError, match="'a' is given twice"):
        plain_arguments({"a": 1, "encrypted__a": 2})


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("Trigger", "a dotted path such as"),
        ("a..b", "a dotted path such as"),
        ("module_that_nobody_has.Trigger", "there is no module 'module_that_nobody_has'"),
        ("trigger_home.nothing.Trigger", "there is no 'nothing' in trigger_home"),
        ("trigger_home.good.Missing", "there is no 'Missing' in trigger_home.good"),
        ("trigger_home.good.Outer.Missing", "there is no 'Missing' in Outer"),
        ("trigger_home.good.Stranger", "does not inherit from BaseTrigger"),
        ("trigger_home.good.function", "it is no class but a function"),
        ("trigger_home.broken.Trigger", "importing trigger_home.broken raised ZeroDivisionError: division by zero"),
        ("trigger_home.leaving.Trigger", "importing trigger_home.leaving raised SystemExit: 3"),
        ("trigger_home.needy.Trigger", "trigger_home.needy needs the module 'module_that_nobody_has'"),
    ],
)
def test_code_that_cannot_be_used_is_named_with_the_reason(modules, path, reason):
    with pytest.raises(CodeNotFound) as caught:
        find_trigger(path)
    assert reason in str(caught.value)
    assert caught.value.path == path


def test_what_a_constructor_raises_is_left_as_it_is():
    with pytest.raises(TypeError, match="unexpected keyword argument 'when'"):
        load_trigger("stannel.triggers.temporal.DateTimeTrigger", {"when": MOMENT})


def test_anything_with_a_dotted_path_is_found():
    assert find_object("datetime.datetime.fromisoformat")("2030-01-01T00:00:00+00:00") == MOMENT


def test_triggers_are_found_under_the_names_that_airflow_gives_them():
    program = """
from stannel.compat.airflow import install
install()
from stannel.triggers.loading import find_trigger
for path in (
    "airflow.triggers.temporal.DateTimeTrigger",
    "airflow.providers.standard.triggers.file.FileTrigger",
    "airflow.providers.standard.triggers.external_task.DagStateTrigger",
    "airflow.providers.http.triggers.http.HttpSensorTrigger",
):
    print(find_trigger(path).__module__)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.split() == [f"stannel.triggers.{name}" for name in ("temporal", "file", "external_task", "http")]
