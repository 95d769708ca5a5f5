"""What the documentation shows works: DAGs compile, Python runs, commands parse, settings load, links lead on."""

import contextlib
import io
import re
import shlex
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import click
import pytest
from click.testing import CliRunner

from stannel.cli.main import cli
from stannel.compat import airflow as shim
from stannel.model.dag import TriggerRule
from stannel.sdk import __all__ as sdk_names
from stannel.sdk import environment
from stannel.sdk.compile import compile_dag
from stannel.sdk.context import CONTEXT_KEYS
from stannel.sdk.load import load_dags
from stannel.sdk.operators import __all__ as operator_names
from stannel.sdk.sensors import __all__ as sensor_names
from stannel.sdk.task_arguments import COMMON_ARGUMENTS
from stannel.settings import load_settings

ROOT = Path(__file__).parents[2]
PAGES = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / "examples" / "README.md"])
GUIDE = (ROOT / "docs" / "guides" / "authoring.md").read_text()

_FENCE = re.compile(r"^( *)```(\w*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
_ASSIGNMENT = re.compile(r"[A-Z_][A-Z0-9_]*=")


class Block(NamedTuple):
    """A fenced block of a page, without its indentation; `line` is where it begins."""

    page: str
    line: int
    language: str
    text: str


class CommandLine(NamedTuple):
    """A call of `stannel` as a page shows it, and the environment variables in front of it."""

    environ: dict[str, str]
    arguments: list[str]


def blocks_in(text: str, page: str) -> Iterator[Block]:
    for fence in _FENCE.finditer(text):
        indent, language, body = fence.groups()
        lines = [line.removeprefix(indent) for line in body.splitlines()]
        yield Block(page, text.count("\n", 0, fence.start()) + 1, language, "\n".join(lines) + "\n")


def commands_in(block: Block) -> Iterator[CommandLine]:
    """Every call of `stannel` in a block; in a console the commands are the lines after a `$`."""
    for line in block.text.replace("\\\n", " ").splitlines():
        if block.language == "console" and not line.startswith("$ "):
            continue
        lexer = shlex.shlex(line.removeprefix("$ "), posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        yield from _calls(list(lexer))


def _calls(words: list[str]) -> Iterator[CommandLine]:
    """The simple commands of a line, cut at `|`, `&&` and the like, that call `stannel`."""
    simple: list[list[str]] = [[]]
    for word in words:
        if word and set(word) <= set("|&;><"):
            simple.append([])
        else:
            simple[-1].append(word)
    for command in simple:
        count = next((place for place, word in enumerate(command) if not _ASSIGNMENT.match(word)), len(command))
        if count < len(command) and Path(command[count]).name == "stannel":
            environ = dict(word.split("=", 1) for word in command[:count])
            yield CommandLine(environ, command[count + 1 :])


BLOCKS = [
    block for page in PAGES for block in blocks_in(page.read_text(), page.relative_to(ROOT).with_suffix("").as_posix())
]


def written_in(*languages: str) -> pytest.MarkDecorator:
    chosen = [block for block in BLOCKS if block.language in languages]
    return pytest.mark.parametrize("block", chosen, ids=[f"{block.page}:{block.line}" for block in chosen])


@pytest.fixture
def clean_imports() -> Iterator[None]:
    """DAG files leave modules, folders to import from and the Airflow shim behind; other tests must not see them."""
    modules, path, hooks = set(sys.modules), list(sys.path), list(sys.path_hooks)
    meta, finders, prefixes = list(sys.meta_path), list(shim._finders), list(environment._prefixes)
    yield
    for name in sys.modules.keys() - modules:
        if name.split(".")[0] == "airflow" or name.startswith("stannel_dag_"):
            del sys.modules[name]
    sys.path[:], sys.path_hooks[:], sys.meta_path[:] = path, hooks, meta
    shim._finders[:], environment._prefixes[:] = finders, prefixes
    sys.path_importer_cache.clear()


def check_python(block: Block, folder: Path) -> None:
    """Load the block as a DAG file and compile what it defines; run it if it defines none."""
    shim.install_if_absent()
    file = folder / "shown.py"
    file.write_text(block.text)
    with contextlib.redirect_stdout(io.StringIO()):
        dags = load_dags(file, folder).dags
    for dag in dags.values():
        assert compile_dag(dag, fileloc=file.name).tasks, f"{dag.dag_id} has no tasks"
    if re.search(r"\bDAG\(|@dag\b", block.text):
        assert dags or "add_dag_file" in block.text, "it shows a DAG, but none is there when it is loaded"


def check_command(command: CommandLine, folder: Path) -> None:
    """Have click parse the command line, down to the types of its values, without doing anything."""
    done = CliRunner().invoke(cli, command.arguments, env={"STANNEL_HOME": str(folder), **command.environ})
    assert done.exit_code == 0, done.output
    settings = load_settings(folder, command.environ)
    assert not settings.warnings


def _leaves(group: click.Group) -> Iterator[click.Command]:
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        assert command is not None
        if isinstance(command, click.Group):
            yield from _leaves(command)
        else:
            yield command


@pytest.fixture
def idle_commands(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """Commands parse their arguments and then do nothing; the folder they are called in has what the pages name."""
    for command in _leaves(cli):
        monkeypatch.setattr(command, "callback", lambda **_: None)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "dags").mkdir()
    for name in ("work/sales.py", "path/to/file.py", "examples/dags/shell.py", "variables.json", "connections.json"):
        file = tmp_path / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text("{}")
    return tmp_path


@written_in("python")
@pytest.mark.usefixtures("clean_imports")
def test_python_on_the_page_runs_and_its_dags_compile(block: Block, tmp_path: Path) -> None:
    check_python(block, tmp_path)


@written_in("bash", "console")
def test_a_command_on_the_page_is_one_stannel_understands(block: Block, idle_commands: Path) -> None:
    for command in commands_in(block):
        check_command(command, idle_commands)


@written_in("toml")
def test_settings_on_the_page_load_without_a_warning(block: Block, tmp_path: Path) -> None:
    (tmp_path / "stannel.toml").write_text(block.text)
    (tmp_path / "secrets").mkdir()
    for name in re.findall(r'_secret = "([^"]+)"', block.text):
        (tmp_path / "secrets" / name).write_text("something")
    assert not load_settings(tmp_path, {}).warnings


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_lead_to_files_and_headings(page: Path) -> None:
    for target in _LINK.findall(_FENCE.sub("", page.read_text())):
        if target.startswith(("http://", "https://")):
            continue
        name, _, anchor = target.partition("#")
        file = (page.parent / name).resolve() if name else page
        assert file.exists(), f"{target} leads nowhere"
        if anchor:
            assert anchor in _anchors(file.read_text()), f"{target}: there is no such heading"


def _anchors(text: str) -> set[str]:
    headings = re.findall(r"^#+ (.+)$", _FENCE.sub("", text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def test_every_page_is_in_the_table_of_contents() -> None:
    contents = ROOT / "docs" / "index.md"
    linked = {(contents.parent / target.partition("#")[0]).resolve() for target in _LINK.findall(contents.read_text())}
    missing = {page for page in PAGES if page.is_relative_to(ROOT / "docs")} - linked - {contents}
    assert not missing


def test_the_guide_names_everything_an_author_can_use() -> None:
    wanted = {*sdk_names, *operator_names, *sensor_names, *CONTEXT_KEYS, *COMMON_ARGUMENTS, *TriggerRule}
    assert sorted(name for name in wanted if not re.search(rf"\b{name}\b", GUIDE)) == []


def test_every_example_is_described() -> None:
    text = (ROOT / "examples" / "README.md").read_text()
    assert [
        file.name for file in sorted((ROOT / "examples" / "dags").glob("*.py")) if f"dags/{file.name}" not in text
    ] == []


# --- the checks themselves can fail -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "stannel dags trigger sales --no-such-option",
        "stannel dags no-such-command",
        "stannel tasks logs sales",
        "stannel pools set warehouse many",
        "STANNEL__CORE__NO_SUCH_KEY=1 stannel standalone",
        "cat values | stannel variables set region",
    ],
)
def test_a_wrong_command_is_found(line: str, idle_commands: Path) -> None:
    (command,) = commands_in(Block("page", 1, "bash", f"{line}\n"))
    with pytest.raises(AssertionError):
        check_command(command, idle_commands)


@pytest.mark.parametrize(
    "text",
    [
        "from stannel.sdk import no_such_name\n",
        "from stannel.sdk import DAG\n\nwith DAG('empty'):\n    pass\n",
        "from stannel.sdk import dag\n\n@dag\ndef never_called(): ...\n",
        "print(unknown)\n",
    ],
)
@pytest.mark.usefixtures("clean_imports")
def test_wrong_python_is_found(text: str, tmp_path: Path) -> None:
    with pytest.raises(Exception, match=r".+"):
        check_python(Block("page", 1, "python", text), tmp_path)


def test_blocks_and_commands_are_found_where_they_stand() -> None:
    text = "1. Do this:\n\n   ```console\n   $ A=1 bin/stannel info | grep x  # why\n   said\n   ```\n"
    (block,) = blocks_in(text, "page")
    assert (block.line, block.language) == (3, "console")
    assert list(commands_in(block)) == [CommandLine({"A": "1"}, ["info"])]
    assert {block.language for block in BLOCKS} >= {"python", "console", "bash", "toml"}
