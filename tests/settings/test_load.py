"""Promises of loading: who wins, what is refused, what is reported, and that secrets stay secret."""

import subprocess
import sys
from pathlib import Path

import pytest

from stannel.errors import SettingsError
from stannel.settings import DECLARATIONS, Secret, load_settings, stannel_home
from stannel.settings.sections import CoordinatorSpec


@pytest.fixture
def load(tmp_path):
    """Load settings from the text of a file and from variables."""

    def load(text="", **environ):
        (tmp_path / "stannel.toml").write_text(text)
        return load_settings(tmp_path, environ)

    return load


@pytest.fixture
def refused(load):
    """The error that such settings are refused with."""

    def refused(text="", **environ):
        with pytest.raises(SettingsError) as caught:
            load(text, **environ)
        return caught.value

    return refused


def origin(settings, section, key):
    return str(settings.origins[section, key])


def test_without_a_file_every_default_holds(tmp_path):
    settings = load_settings(tmp_path / "nowhere", {})
    assert settings.core.parallelism == 32
    assert settings.core.dags_are_paused_at_creation is False
    assert settings.core.default_task_execution_timeout is None
    assert settings.core.dags_folder == tmp_path / "nowhere" / "dags"
    assert settings.database.sql_alchemy_conn.reveal() == f"sqlite:///{tmp_path}/nowhere/stannel.db"
    assert settings.warnings == ()
    assert {str(where) for where in settings.origins.values()} == {"default"}
    assert len(settings.origins) == len(DECLARATIONS)


def test_the_home_is_named_by_the_environment(tmp_path):
    assert stannel_home({"STANNEL_HOME": str(tmp_path)}) == tmp_path
    assert stannel_home({}) == Path.home() / ".stannel"
    assert stannel_home({"STANNEL_HOME": ""}) == Path.home() / ".stannel"


def test_the_file_wins_over_the_default_and_says_its_line(load, tmp_path):
    settings = load("# a comment\n[core]\n\nparallelism = 5\n")
    assert settings.core.parallelism == 5
    assert origin(settings, "core", "parallelism") == f"{tmp_path}/stannel.toml:4"


def test_the_environment_wins_over_the_file(load):
    settings = load("[core]\nparallelism = 5\n", STANNEL__CORE__PARALLELISM="6")
    assert settings.core.parallelism == 6
    assert origin(settings, "core", "parallelism") == "STANNEL__CORE__PARALLELISM"


def test_a_command_prints_the_value(load):
    settings = load("[core]\nparallelism = 5\n", STANNEL__CORE__PARALLELISM_CMD="echo 6 | tr 6 7")
    assert settings.core.parallelism == 7
    assert origin(settings, "core", "parallelism") == "output of STANNEL__CORE__PARALLELISM_CMD"


def test_a_command_in_the_file_prints_the_value(load, tmp_path):
    settings = load("[core]\nhostname_cmd = 'echo here'\n")
    assert settings.core.hostname == "here"
    assert origin(settings, "core", "hostname") == f"output of {tmp_path}/stannel.toml:2"
    assert settings.warnings == ()


def test_the_value_itself_wins_over_the_command(load):
    settings = load(STANNEL__CORE__HOSTNAME="plain", STANNEL__CORE__HOSTNAME_CMD="exit 1")
    assert settings.core.hostname == "plain"


def test_a_failing_command_is_refused_with_its_complaint(refused):
    error = refused(STANNEL__CORE__FERNET_KEY_CMD="echo no vault here >&2; exit 3")
    assert str(error).startswith("STANNEL__CORE__FERNET_KEY_CMD: [core] fernet_key")
    assert "exit code 3 (no vault here)" in str(error)


def test_a_secret_is_read_from_the_homes_secrets(load, tmp_path):
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "db").write_text("postgresql://joe:hunter22@db/x\n")
    settings = load(STANNEL__DATABASE__SQL_ALCHEMY_CONN_SECRET="db")
    assert settings.database.sql_alchemy_conn == Secret("postgresql://joe:hunter22@db/x")
    assert origin(settings, "database", "sql_alchemy_conn") == (
        "secret named by STANNEL__DATABASE__SQL_ALCHEMY_CONN_SECRET"
    )


def test_a_secret_with_an_absolute_path_is_read_there(load, tmp_path):
    path = tmp_path / "mounted"
    path.write_text("key")
    assert load(f"[core]\nfernet_key_secret = '{path}'\n").core.fernet_key.reveal() == "key"


def test_a_secret_that_is_not_there_is_refused_with_its_path(refused, tmp_path):
    error = refused(STANNEL__CORE__FERNET_KEY_SECRET="nothing")
    assert f"{tmp_path}/secrets/nothing" in str(error)
    assert "No such file" in str(error)


def test_secrets_show_nowhere(load):
    settings = load(
        "[core]\nfernet_key = 'hunter22'\n", STANNEL__DATABASE__SQL_ALCHEMY_CONN="postgresql://j:hunter22@d/x"
    )
    shown = f"{settings} {settings!r} {settings.entries()} {settings.core.fernet_key}"
    assert "hunter22" not in shown
    assert settings.entry("core", "fernet_key").value == "***"
    assert settings.core.fernet_key.reveal() == "hunter22"


@pytest.mark.parametrize("text", ["[core]\nfernet_key = 22887766\n", "[core]\nfernet_key = ['22887766']\n"])
def test_a_refused_secret_does_not_show_in_the_error(refused, text):
    error = refused(text)
    assert "must be text" in str(error)
    assert "22887766" not in str(error)


def test_the_output_of_a_command_does_not_show_in_the_error(refused):
    error = refused(STANNEL__CORE__PARALLELISM_CMD="echo hunter22")
    assert "must be a whole number of at least 1" in str(error)
    assert "hunter22" not in str(error)


@pytest.mark.parametrize(
    ("lines", "line", "complaint"),
    [
        ("parallelism = '5'", 3, "[core] parallelism must be a whole number of at least 1, not '5'"),
        ("parallelism = 0", 3, "[core] parallelism must be a whole number of at least 1, not 0"),
        ("parallelism = true", 3, "[core] parallelism must be a whole number"),
        ("parallelism = 2.5", 3, "[core] parallelism must be a whole number"),
        ("dags_are_paused_at_creation = 1", 3, "[core] dags_are_paused_at_creation must be true or false, not 1"),
        (
            "dags_are_paused_at_creation = 'yes'",
            3,
            "[core] dags_are_paused_at_creation must be true or false, not 'yes'",
        ),
        ("hostname = 5", 3, "[core] hostname must be text, not 5"),
        ("dags_folder = 5", 3, "[core] dags_folder must be a path, not 5"),
        ("dagbag_import_timeout = -1", 3, "[core] dagbag_import_timeout must be a number above 0, not -1"),
        ("dagbag_import_timeout = nan", 3, "[core] dagbag_import_timeout must be a number above 0, not nan"),
        ("default_task_execution_timeout = 'x'", 3, "must be a number above 0, or empty, not 'x'"),
        ("sensitive_var_conn_names = [1]", 3, "[core] sensitive_var_conn_names must be a list of texts, not [1]"),
        ("default_timezone = 'Mars/Olympus'", 3, "[core] default_timezone must be the name of a time zone"),
        ("xcom_max_size = 999_999_999", 3, "[core] xcom_max_size must be less than [workers] frame_limit"),
        ("[logging]\nlogging_level = 'LOUD'", 4, "must be one of DEBUG, INFO, WARNING, ERROR, CRITICAL, not 'LOUD'"),
        ("[scheduler]\nlease_seconds = 0.5", 4, "[scheduler] lease_seconds must be longer than"),
        ("[sdk.coordinators.java]\nclasspath = 3", 3, "[sdk] coordinators must be a table"),
        ("[sdk.coordinators.java]\nclasspath = 'a'\nkwarg = {}", 3, "contains unknown field `kwarg`"),
        ("[sdk.queue_to_coordinator]\nq = 'jav'", 3, "[sdk] queue_to_coordinator sends the queue 'q' to 'jav'"),
    ],
)
def test_a_wrong_value_is_refused_with_file_and_line(refused, tmp_path, lines, line, complaint):
    error = refused(f"# settings\n[core]\n{lines}\n")
    assert (error.file, error.line) == (f"{tmp_path}/stannel.toml", line)
    assert str(error).startswith(f"{tmp_path}/stannel.toml:{line}: ")
    assert complaint in str(error)


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("core.parallelism = 'x'", 1),
        ("\n'core' . \"parallelism\"= 'x'", 2),
        ("core = {parallelism = 'x'}", 1),
        ("[database]\npool_size = 3\n[ core ] # here\n\tparallelism='x'", 4),
        ("[scheduler]\n# parallelism = 1\n[core]\n# parallelism = 1\nparallelism = 'x'", 5),
        ("core = 5", 1),
    ],
)
def test_the_line_is_found_however_the_key_is_written(refused, text, line):
    assert refused(text).line == line


def test_a_wrong_variable_is_refused_by_its_name(refused):
    error = refused(STANNEL__CORE__PARALLELISM="many")
    assert (error.file, error.line) == ("STANNEL__CORE__PARALLELISM", None)
    assert "[core] parallelism must be a whole number of at least 1, not 'many'" in str(error)


def test_two_settings_that_contradict_each_other_are_refused_where_one_was_set(refused):
    assert refused(STANNEL__SCHEDULER__LEASE_SECONDS="0.5").file == "STANNEL__SCHEDULER__LEASE_SECONDS"
    assert refused("[scheduler]\nscheduler_heartbeat_sec = 9\n").line == 2
    assert refused("[workers]\nframe_limit_cmd = 'echo 9'\n").line == 2


def test_broken_toml_is_refused_with_its_line(refused, tmp_path):
    error = refused("[core]\nparallelism = = 5\n")
    assert (error.file, error.line) == (f"{tmp_path}/stannel.toml", 2)
    assert "is not valid TOML here" in str(error)


def test_a_file_that_is_not_text_is_refused(tmp_path):
    (tmp_path / "stannel.toml").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(SettingsError, match="is not UTF-8 text"):
        load_settings(tmp_path, {})


def test_a_file_that_cannot_be_read_is_refused(tmp_path):
    (tmp_path / "stannel.toml").mkdir()
    with pytest.raises(SettingsError, match="cannot be read"):
        load_settings(tmp_path, {})


@pytest.mark.parametrize(
    ("text", "warning"),
    [
        ("[core]\nparalelism = 5", "stannel.toml:2: unknown key [core] paralelism; did you mean parallelism?"),
        ("[core]\nParallelism = 5", "stannel.toml:2: unknown key [core] Parallelism; did you mean parallelism?"),
        ("[core]\nzzz = 5", "stannel.toml:2: unknown key [core] zzz"),
        ("[core]\npool_size = 5", "stannel.toml:2: unknown key [core] pool_size; did you mean [database] pool_size?"),
        ("\n[databse]\nx = 5", "stannel.toml:3: unknown section [databse]; did you mean database?"),
        ("\n[databse]", "stannel.toml:2: unknown section [databse]; did you mean database?"),
        (
            "parallelism = 5",
            "stannel.toml:1: unknown key parallelism outside of any section; did you mean [core] parallelism?",
        ),
    ],
)
def test_an_unknown_key_is_reported_and_has_no_effect(load, tmp_path, text, warning):
    settings = load(text)
    assert settings.warnings == (f"{tmp_path}/{warning}",)
    assert settings.core.parallelism == 32


def test_an_unknown_variable_is_reported(load):
    settings = load(STANNEL__CORE__PARALELISM="5", STANNEL_HOME="x", STANNEL_VAR_A="y", PATH="z")
    assert settings.warnings == ("STANNEL__CORE__PARALELISM: unknown key [core] paralelism; did you mean parallelism?",)


def test_an_empty_known_section_is_no_mistake(load):
    assert load("[core]\n[scheduler]\n").warnings == ()


@pytest.mark.parametrize("given", ["dags", "./dags"])
def test_a_path_that_is_not_absolute_starts_at_the_home(load, tmp_path, given):
    assert load(f"[core]\ndags_folder = '{given}'").core.dags_folder == tmp_path / "dags"
    assert load(STANNEL__CORE__DAGS_FOLDER=given).core.dags_folder == tmp_path / "dags"
    assert load(STANNEL__CORE__DAGS_FOLDER="~/dags").core.dags_folder == Path.home() / "dags"


def test_coordinators_may_be_tables_or_json(load):
    java = CoordinatorSpec(classpath="a.B", kwargs={"jars_root": "/jars"})
    as_table = load(
        "[sdk.coordinators.java]\nclasspath = 'a.B'\nkwargs = {jars_root = '/jars'}\n"
        "[sdk.queue_to_coordinator]\njvm = 'java'\n"
    )
    as_json = load(
        STANNEL__SDK__COORDINATORS='{"java": {"classpath": "a.B", "kwargs": {"jars_root": "/jars"}}}',
        STANNEL__SDK__QUEUE_TO_COORDINATOR='{"jvm": "java"}',
    )
    for settings in (as_table, as_json):
        assert settings.sdk.coordinators == {"java": java}
        assert settings.sdk.queue_to_coordinator == {"jvm": "java"}


def test_settings_load_without_the_database_or_the_web():
    heavy = "{'sqlalchemy', 'alembic', 'rich', 'click', 'jinja2', 'asyncio', 'importlib.metadata', 'cryptography'}"
    program = f"import stannel.settings, sys; print(sorted({heavy} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout == "[]\n"
