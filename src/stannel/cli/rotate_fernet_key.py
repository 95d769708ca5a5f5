"""`stannel rotate-fernet-key`: everything secret in the database, encrypted again with the newest key."""

import click

from stannel.cli.base import Command, Refused, Session, pass_session, say


@click.command("rotate-fernet-key", cls=Command)
@click.option("--new", is_flag=True, help="Make a new key first and put it in front of those in <home>/fernet.key.")
@pass_session
def command(session: Session, new: bool) -> None:
    """Encrypt all secrets in the database again with the newest key.

    These are variables, the passwords and extras of connections, and the arguments of triggers. The newest key is
    the first of [core] fernet_key, or of the file <home>/fernet.key when that is not set. Keys are separated by
    commas; the others are only used to read.

    With a key file, `--new` does everything. Programs at work on this home notice the new key by themselves; the old
    key stays behind it. Remove it from the file when you are sure that no backup needs it.

    With [core] fernet_key, write the new key behind the old one and restart every program; then move it to the front
    and restart them again; then call this command; then remove the old key. So no program ever meets a value that it
    cannot read. A key is made with:
    python -c "from cryptography.fernet import Fernet; print(Fernet.generate_key().decode())"

    \b
    Examples:
      stannel rotate-fernet-key --new
      STANNEL__CORE__FERNET_KEY=new-key,old-key stannel rotate-fernet-key
    """
    from stannel.store.vault import add_key, key_file

    configured = session.settings.core.fernet_key
    if new:
        if configured:
            origin = session.settings.origins.get(("core", "fernet_key"))
            where = f" ({origin})" if origin else ""
            raise Refused(
                f"The keys of this home are set by [core] fernet_key{where}, which no command can change. "
                "Add a key there as stannel rotate-fernet-key --help says; nothing was changed."
            )
        file = key_file(session.home)
        add_key(file)
        say(f"A new key stands first in {file}.")
    store = session.store
    counts = (
        f"{store.variables.reseal()} variables",
        f"{store.connections.reseal()} connections",
        f"the arguments of {store.triggers.reseal() + store.watchers.reseal()} triggers",
    )
    say(f"{counts[0]}, {counts[1]} and {counts[2]} are encrypted with the newest key now.")
