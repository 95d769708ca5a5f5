"""The code of triggers: where it is found, and which version of which file was read."""

import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec

from stannel.protocol.triggering import Failed, Fired, Loaded, StartTriggers
from stannel.sdk.load import module_name
from stannel.triggerer.host.code import fingerprint

HostOf = Callable[..., Any]
Code = Callable[..., None]


def loaded(host: Any, file: Path) -> str:
    """The fingerprint under which the host says it has read the file."""
    mark: str = host.until(lambda report: report.files.get(str(file)) if isinstance(report, Loaded) else None)
    return mark


def age(file: Path) -> None:
    """Make the file older than anything the host can take for an edit that came in between."""
    os.utime(file, (1_700_000_000, 1_700_000_000))


def test_files_of_triggers_are_reported_with_their_fingerprints(host_of: HostOf, code: Code, dags: Path) -> None:
    (dags / "pkg").mkdir()
    (dags / "pkg" / "__init__.py").write_text("")
    (dags / "pkg" / "helper.py").write_text("VALUE = 1\n")
    code("""
        from pkg import helper

        class Fires(Plain):
            async def run(self):
                import late
                yield TriggerEvent(helper.VALUE + late.VALUE)
    """)
    (dags / "late.py").write_text("VALUE = 2\n")
    for file in dags.rglob("*.py"):
        age(file)
    host = host_of()
    host.start(1, "mine.Fires")
    assert host.of(Fired, 1).event.payload == 3
    for name in ("mine.py", "pkg/helper.py", "late.py"):
        stat = (dags / name).stat()
        assert loaded(host, dags / name) == f"{stat.st_mtime_ns}-{stat.st_size}"
    files = {file for report in host.seen if isinstance(report, Loaded) for file in report.files}
    assert {Path(file).parent for file in files} <= {dags, dags / "pkg"}


def test_a_class_defined_in_a_dag_file_is_found_under_the_name_task_processes_know(
    host_of: HostOf, code: Code, dags: Path
) -> None:
    (dags / "deep").mkdir()
    code(
        """
        import dataclasses
        from stannel.sdk import DAG

        with DAG("here"):
            pass

        @dataclasses.dataclass
        class Argument:
            number: int

        class Fires(Plain):
            async def run(self):
                yield TriggerEvent([self.kwargs["given"].number, __name__])
    """,
        name="deep/my-dag",
    )
    name = module_name(dags / "deep" / "my-dag.py")
    host = host_of()
    argument = {"__classname__": f"{name}:Argument", "__version__": 1, "__data__": {"number": 5}}
    order = msgspec.structs.replace(host.order(1, f"{name}.Fires"), kwargs={"given": argument})
    host.say(StartTriggers([order]))
    assert host.of(Fired, 1).event.payload == [5, name]
    assert loaded(host, dags / "deep" / "my-dag.py")


def test_triggers_written_for_airflow_are_found(host_of: HostOf, dags: Path) -> None:
    (dags / "theirs.py").write_text(
        "from airflow.triggers.base import BaseTrigger, TriggerEvent\n"
        "class Fires(BaseTrigger):\n"
        "    def serialize(self):\n"
        "        return 'theirs.Fires', {}\n"
        "    async def run(self):\n"
        "        yield TriggerEvent('through the shim')\n"
    )
    host = host_of()
    host.start(1, "theirs.Fires")
    assert host.of(Fired, 1).event.payload == "through the shim"


def test_a_module_that_could_not_be_imported_is_tried_again(host_of: HostOf, code: Code) -> None:
    host = host_of()
    host.start(1, "mine.Fires")
    assert "no module 'mine'" in "\n".join(host.of(Failed, 1).traceback)
    code("this is no Python")
    host.start(2, "mine.Fires")
    assert "SyntaxError" in "\n".join(host.of(Failed, 2).traceback)
    code("""
        class Fires(Plain):
            async def run(self):
                yield TriggerEvent("mended")
    """)
    host.start(3, "mine.Fires")
    assert host.of(Fired, 3).event.payload == "mended"


def test_a_host_keeps_the_code_it_has_read(host_of: HostOf, code: Code) -> None:
    text = """
        class Fires(Plain):
            async def run(self):
                yield TriggerEvent("{}")
    """
    code(text.format("first"))
    host = host_of()
    host.start(1, "mine.Fires")
    assert host.of(Fired, 1).event.payload == "first"
    code(text.format("second"))
    host.start(2, "mine.Fires")
    assert host.of(Fired, 2).event.payload == "first"


def test_a_slow_import_does_not_stop_the_loop(host_of: HostOf, code: Code, dags: Path) -> None:
    code(
        f"""
        from pathlib import Path

        while not Path({str(dags / "flag")!r}).exists():
            time.sleep(0.01)

        class Fires(Plain):
            async def run(self):
                yield TriggerEvent("imported")
    """,
        name="slow",
    )
    code("""
        class Fires(Plain):
            async def run(self):
                yield TriggerEvent("meanwhile")
    """)
    host = host_of()
    for number in (1, 2):
        host.start(number, "slow.Fires")
    host.start(3, "mine.Fires")
    assert host.of(Fired, 3).event.payload == "meanwhile"
    (dags / "flag").touch()
    for number in (1, 2):
        assert host.of(Fired, number).event.payload == "imported"


def test_a_file_that_was_edited_while_it_was_imported_matches_no_version(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    file.write_text("x = 1\n")
    now = time.time_ns()
    edited = file.stat().st_mtime_ns
    known = f"{edited}-6"
    second = 1_000_000_000
    assert fingerprint(str(file), edited + second, now + 2 * second) == known
    assert fingerprint(str(file), edited - second, now + 2 * second) not in (known, None)
    # A clock that was wrong when the file was written is no reason to distrust it for ever.
    assert fingerprint(str(file), edited - 2 * second, edited - second) == known
    assert fingerprint(str(tmp_path / "none.py"), 0, now) is None
