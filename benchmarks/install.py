"""What a run-time installation brings along: distributions and megabytes in a fresh environment."""

import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

import airflow_side
import harness


@dataclass(frozen=True)
class Installed:
    distributions: int
    megabytes: float
    seconds: float


def main() -> None:
    options = harness.options("install", stores=["sqlite"])
    with tempfile.TemporaryDirectory(prefix="stannel-bench-") as folder:
        stannel = install_stannel(Path(folder))
        airflow = (
            install_into(Path(folder, "airflow"), f"apache-airflow=={airflow_side.VERSION}")
            if options.against_airflow
            else None
        )
    harness.print_result(
        "install", "distributions", "lower", stannel.distributions, airflow and airflow.distributions,
        megabytes=stannel.megabytes, seconds=stannel.seconds,
        airflow_megabytes=airflow and airflow.megabytes, airflow_seconds=airflow and airflow.seconds,
    )  # fmt: skip


def install_stannel(folder: Path) -> Installed:
    """The wheel of this checkout with the versions it is tested with."""
    build = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", folder / "dist"]
    subprocess.run(build, check=True, cwd=harness.ROOT, capture_output=True, env=harness.clean_environment())
    [wheel] = (folder / "dist").glob("*.whl")
    return install_into(folder / "stannel", str(wheel), "--constraint", str(harness.ROOT / "requirements/run.txt"))


def install_into(venv: Path, *what: str) -> Installed:
    uv = Path(sys.executable).with_name("uv")
    subprocess.run([uv, "venv", "--quiet", "--python", sys.executable, venv], check=True)
    started = time.monotonic()
    airflow_side.install(venv / "bin/python", *what)
    seconds = time.monotonic() - started
    [packages] = venv.glob("lib/python*/site-packages")
    size = sum(file.lstat().st_size for file in packages.rglob("*") if file.is_file())
    return Installed(len(list(packages.glob("*.dist-info"))), size / 1e6, seconds)


if __name__ == "__main__":
    main()
