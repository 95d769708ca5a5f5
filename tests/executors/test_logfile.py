"""Every program writes into the same log, in the same form, at the level that was asked for."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import logging, os
from pathlib import Path
from stannel.executors.logfile import log_to
from stannel.settings import load_settings
file = log_to(load_settings(Path(os.environ["STANNEL_HOME"]), os.environ))
assert file.name == "stannel.log"
logging.getLogger("loud").debug("heard")
logging.getLogger("other").debug("not heard")
logging.getLogger("other").warning("heard too")
"""


def test_lines_name_their_program_and_levels_hold_for_single_namespaces(tmp_path: Path) -> None:
    environ = {
        "STANNEL_HOME": str(tmp_path),
        "STANNEL__LOGGING__BASE_LOG_FOLDER": str(tmp_path / "some" / "logs"),
        "STANNEL__LOGGING__NAMESPACE_LEVELS": "loud=DEBUG, quiet=ERROR",
    }
    subprocess.run([sys.executable, "-c", PROGRAM], env=environ, check=True, timeout=60)
    lines = (tmp_path / "some" / "logs" / "stannel.log").read_text().splitlines()
    assert [line.split()[2] for line in lines] == ["DEBUG", "WARNING"]
    assert [line.partition("] ")[2] for line in lines] == ["heard", "heard too"]
    assert "loud[" in lines[0]
