"""`stannel version`."""

import click

import stannel
from stannel.cli.base import Command


@click.command("version", cls=Command)
def command() -> None:
    """Print the version."""
    click.echo(stannel.__version__)
