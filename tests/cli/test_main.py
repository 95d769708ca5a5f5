"""The front door: help without imports, errors as sentences, exit codes that scripts can trust."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import click
import pytest

from stannel import __version__
from stannel.cli.main import COMMANDS, cli

PROGRAM = [sys.executable, "-m", "stannel.cli.main"]

LOADED = """
import sys
from stannel.cli.main import cli
cli.main({args}, standalone_mode=False)
print(*sys.modules, file=sys.stderr)
"""


def modules_loaded_by(*args: str) -> set[str]:
    command = [sys.executable, "-c", LOADED.format(args=list(args))]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stderr.split())


def test_the_version_is_one_line(stannel):
    assert stannel("version").stdout == f"{__version__}\n"


def test_printing_the_version_loads_neither_the_store_nor_a_table_library():
    assert {"rich", "sqlalchemy", "msgspec"}.isdisjoint(modules_loaded_by("version"))


@pytest.mark.parametrize("name", COMMANDS)
def test_the_one_line_help_of_a_command_is_its_own(name):
    command = cli.get_command(click.Context(cli), name)
    assert command is not None
    assert command.get_short_help_str(limit=200) == COMMANDS[name]


def test_help_teaches_examples_and_exit_codes(stannel):
    text = stannel("--help").stdout
    assert "stannel dags trigger my_dag --wait" in text
    assert "Exit codes:" in text


def test_an_unknown_command_gets_a_suggestion_and_is_a_usage_error(stannel):
    result = stannel("dag", code=2)
    assert "There is no command 'dag'; did you mean dags" in result.stderr
    assert "did you mean trigger?" in stannel("dags", "triger", code=2).stderr


def test_an_unknown_id_is_one_sentence_with_a_suggestion(stannel, store):
    result = stannel("dags", "show", "order", code=1)
    assert result.stderr == "stannel: There is no DAG 'order'; did you mean orders?\n"
    assert result.stdout == ""


def test_a_traceback_is_shown_on_request(stannel, store):
    assert "Traceback" in stannel("dags", "show", "order", "--traceback", code=1).stderr
    assert "Traceback" in stannel("dags", "show", "order", code=1, env={"STANNEL_TRACEBACK": "1"}).stderr


def test_the_home_may_be_named_before_or_after_a_command(stannel, tmp_path):
    other = tmp_path / "other"
    for args in (("--home", str(other), "config", "get", "core.dags_folder"), ("config", "get", "core.dags_folder")):
        given = args if "--home" in args else (*args, "--home", str(other))
        assert stannel(*given).stdout.strip() == f"{other}/dags"


def test_a_setting_nobody_knows_is_reported_once_beside_the_output(stannel, home):
    home.mkdir()
    (home / "stannel.toml").write_text("[core]\nparalelism = 3\n")
    result = stannel("pools", "list")
    assert result.stderr.count("unknown key [core] paralelism") == 1
    assert "paralelism" not in result.stdout


def test_a_setting_of_the_wrong_type_is_refused_with_file_and_line(stannel, home):
    home.mkdir()
    (home / "stannel.toml").write_text("[core]\nparallelism = 'many'\n")
    result = stannel("pools", "list", code=1)
    assert f"{home}/stannel.toml:2: [core] parallelism must be" in result.stderr


def test_a_database_that_cannot_be_opened_is_a_sentence(stannel, home):
    home.mkdir()
    (home / "stannel.db").write_text("this is not a database, but it is long enough to look like a file of one" * 20)
    result = stannel("pools", "list", code=1)
    assert "stannel.db cannot be used: file is not a database" in result.stderr


def test_a_reader_that_goes_away_is_no_error_message(store, home):
    for number in range(300):
        store.variables.save(f"variable_{number}", "x" * 200)
    command = subprocess.Popen(
        [*PROGRAM, "variables", "list", "--show-values"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env={**os.environ, "STANNEL_HOME": str(home)},
    )
    assert command.stdout is not None
    assert command.stderr is not None
    command.stdout.close()
    complaints = command.stderr.read()
    command.stderr.close()
    command.wait(30)
    assert complaints == b""


def test_ctrl_c_is_quiet_and_has_the_exit_code_of_an_interrupt(store, make_run, home):
    make_run()
    watching = subprocess.Popen(
        [*PROGRAM, "dags", "trigger", "plain", "--wait"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "STANNEL_HOME": str(home)},
    )
    assert watching.stderr is not None
    assert "is made" in watching.stderr.readline()
    watching.send_signal(signal.SIGINT)
    _, complaints = watching.communicate(timeout=30)
    assert watching.returncode == 130
    assert "Traceback" not in complaints


def test_output_for_programs_is_the_same_list_in_every_form(stannel, store):
    as_json = json.loads(stannel("pools", "list", "-o", "json").stdout)
    yaml = stannel("pools", "list", "-o", "yaml").stdout
    plain = stannel("pools", "list", "-o", "plain").stdout
    assert [pool["name"] for pool in as_json] == ["default_pool"]
    assert "- name: default_pool\n  slots: 128\n" in yaml
    assert plain.split("\t")[:2] == ["default_pool", "128"]


def test_nothing_is_coloured_outside_of_a_terminal(stannel, store, make_run):
    make_run()
    assert "\x1b" not in stannel("runs", "list").output


def test_help_of_every_command_can_be_read(stannel):
    def walk(command: click.Command, path: list[str]) -> None:
        assert stannel(*path, "--help").stdout.startswith("Usage: ")
        if isinstance(command, click.Group):
            for name in command.list_commands(click.Context(command)):
                inner = command.get_command(click.Context(command), name)
                assert inner is not None
                assert inner.help, name
                walk(inner, [*path, name])

    walk(cli, [])


def test_the_entry_point_is_installed():
    program = Path(sys.executable).with_name("stannel")
    if not program.exists():
        pytest.skip("stannel is not installed as a package here")
    assert subprocess.run([program, "version"], capture_output=True, text=True).stdout == f"{__version__}\n"
