"""Import one DAG file and collect its DAGs; whatever goes wrong names the file and the author's line."""

import importlib.machinery
import importlib.util
import os
import sys
import time
import traceback
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from stannel.errors import DagInvalid, ImportFailed, StannelError
from stannel.sdk import building
from stannel.sdk.dags import DAG

# Bytecode remembers its source by length and by the second it was written in.
_BYTECODE_DOUBT_SECONDS = 2.0


@dataclass(frozen=True)
class LoadedFile:
    """What a DAG file gave: its DAGs in the author's order, and the other files of the DAG folder it needed."""

    path: Path
    module: ModuleType
    dags: dict[str, DAG]
    dependencies: list[Path]


def load_dags(path: str | Path, dags_folder: str | Path) -> LoadedFile:
    """Import the file and collect every DAG that it defines: those it names, and those it merely makes.

    A DAG imported from another file of the DAG folder belongs to that file and is left out here.
    """
    path, dags_folder = Path(path).resolve(), Path(dags_folder).resolve()
    import_from(str(dags_folder))
    module = _new_module(path)
    with building.registered_dags() as registered:
        _execute(module, path)
    named = [value for value in vars(module).values() if isinstance(value, DAG)]
    dags: dict[str, DAG] = {}
    for dag in [*registered, *named]:
        if not _belongs_elsewhere(dag, path, dags_folder):
            _add(dags, dag, path)
    return LoadedFile(path=path, module=module, dags=dags, dependencies=_dependencies(path, dags_folder))


def module_name(path: Path) -> str:
    """The name a DAG file is imported under: its own, made unique, and the same in every process."""
    # Not hashlib: the library behind it would be part of every process forked from here.
    digest = importlib.util.source_hash(str(path).encode()).hex()
    stem = "".join(character if character.isalnum() else "_" for character in path.stem)
    return f"stannel_dag_{digest}_{stem}"


class _Source(importlib.machinery.SourceFileLoader):
    """Distrusts bytecode of a file that was just edited: a second edit within the same second would go unnoticed."""

    def path_stats(self, path: Any) -> Any:
        stats = super().path_stats(path)
        if time.time() - stats["mtime"] < _BYTECODE_DOUBT_SECONDS:
            raise OSError(f"{path} is read anew")
        return stats


def import_from(folder: str) -> None:
    """Let modules of the DAG folder be imported, by the same loader as the DAG files."""
    if folder in sys.path:
        return
    inside = folder + os.sep
    loaders = (
        (importlib.machinery.ExtensionFileLoader, importlib.machinery.EXTENSION_SUFFIXES),
        (_Source, importlib.machinery.SOURCE_SUFFIXES),
    )

    def finder(path: str) -> importlib.machinery.FileFinder:
        if path != folder and not path.startswith(inside):
            raise ImportError(f"{path} is not in the DAG folder")
        return importlib.machinery.FileFinder(path, *loaders)

    sys.path_hooks.insert(0, finder)
    sys.path_importer_cache.pop(folder, None)
    sys.path.insert(0, folder)


def _new_module(path: Path) -> ModuleType:
    name = module_name(path)
    loader = _Source(name, str(path))
    spec = importlib.util.spec_from_loader(name, loader)
    assert spec is not None
    return importlib.util.module_from_spec(spec)


def _execute(module: ModuleType, path: Path) -> None:
    sys.modules[module.__name__] = module
    assert module.__spec__ is not None
    assert module.__spec__.loader is not None
    try:
        module.__spec__.loader.exec_module(module)
    except (Exception, SystemExit) as error:
        sys.modules.pop(module.__name__, None)
        raise ImportFailed(str(path), _reason(error, path)) from error


def _reason(error: BaseException, path: Path) -> str:
    """One line for people: where in the author's file it happened, and what."""
    if isinstance(error, SyntaxError):
        return f"line {error.lineno}: {error.msg}" if error.filename == str(path) else f"{error}"
    lines = [frame.lineno for frame in traceback.extract_tb(error.__traceback__) if frame.filename == str(path)]
    where = f"line {lines[-1]}: " if lines else ""
    text = str(error).strip().rstrip(".")
    name = "" if isinstance(error, StannelError) else type(error).__name__
    return f"{where}{name}{': ' if name and text else ''}{text}"


def _belongs_elsewhere(dag: DAG, path: Path, dags_folder: Path) -> bool:
    made_in = Path(dag.fileloc).resolve() if dag.fileloc else path
    return made_in != path and made_in.is_relative_to(dags_folder)


def _add(dags: dict[str, DAG], dag: DAG, path: Path) -> None:
    known = dags.get(dag.dag_id)
    if known is dag:
        return
    if known is not None:
        raise DagInvalid(dag.dag_id, str(path), "the file defines two DAGs with this id; give one of them another id")
    dags[dag.dag_id] = dag


def _dependencies(path: Path, dags_folder: Path) -> list[Path]:
    """The files of the DAG folder that are loaded besides the DAG file: when one changes, the DAGs may have."""
    inside = f"{dags_folder}{os.sep}"
    files = [getattr(module, "__file__", None) for module in list(sys.modules.values())]
    return sorted({Path(file) for file in files if isinstance(file, str) and _is_source(file, inside)} - {path})


def _is_source(file: str, inside: str) -> bool:
    return file.startswith(inside) and file.endswith(".py")
