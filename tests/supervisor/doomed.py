"""A supervising process to be killed: starts a task that runs for ever and prints the pids of all it started."""

import asyncio
import sys
from pathlib import Path

from supervisor.bench import Bench, fork_settings

from stannel.supervisor.files import ForkLaunch


async def main(folder: Path) -> None:
    launch = ForkLaunch(fork_settings(folder))
    bench = Bench(launch, folder)
    _, running = bench.start("ignores_sigterm")
    await bench.said("ignoring")
    task = str(bench.events("stannel.supervisor")[0]).rsplit(maxsplit=1)[-1]
    print(launch.base_pid, *launch.file_servers.values(), task, flush=True)
    await running


asyncio.run(main(Path(sys.argv[1])))
