"""The program `stannel`: the list of its commands, each imported only when it is called."""

from stannel.cli.base import Root

EPILOG = """\b
Examples:
  stannel standalone                        start everything, on SQLite
  stannel dags trigger my_dag --wait        start a run and watch it
  stannel tasks logs my_dag my_task         what the task printed in the latest run
  stannel dags list --output json           the same table for a program

\b
Exit codes:
  0    all went well
  1    what was asked about failed, or what was asked for was refused
  2    the command line could not be understood
  130  stopped by Ctrl-C

`--home` and `--traceback` may stand before or after a command."""

# The second column is what `stannel --help` shows, so that it need not import anything.
COMMANDS = {
    "standalone": "Start the whole engine in one program.",
    "scheduler": "Start only a scheduler with its workers.",
    "triggerer": "Start only a triggerer, which runs what deferred tasks wait for.",
    "dags": "List, trigger, pause and try out DAGs.",
    "runs": "List, show, change and delete runs.",
    "tasks": "List, clear and try out tasks; read their logs.",
    "triggers": "List, show and cancel what deferred tasks wait for; list and show what watches for assets.",
    "triggerers": "List the programs that run triggers.",
    "streams": "Show what watchers read together, and how far they are.",
    "variables": "Keep texts that DAGs read.",
    "connections": "Keep the addresses and passwords of other systems.",
    "state-store": "Look at what task instances and assets keep, and change it.",
    "pools": "Limit how many tasks of a kind run at once.",
    "config": "Show the settings and where they come from.",
    "db": "Upgrade, check and clean the database.",
    "rotate-fernet-key": "Encrypt all secrets in the database again with the newest key.",
    "info": "Show what is installed, where, and what is at work.",
    "version": "Print the version.",
}

cli = Root(
    name="stannel",
    help="Stannel runs Airflow-style DAGs: at once, on one machine or on many.",
    epilog=EPILOG,
    lazy=COMMANDS,
)


def main() -> None:
    """The entry point; ends the process with one of the exit codes above."""
    cli.main(prog_name="stannel")


if __name__ == "__main__":
    main()
