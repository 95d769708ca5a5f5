"""A new key for everything secret, without anybody who cannot read it afterwards."""

import pytest
from cryptography.fernet import Fernet
from store.world import World

from stannel.errors import SecretUnreadable
from stannel.store.entries import StoredConnection
from stannel.store.store import Store
from stannel.store.vault import Vault

CONNECTION = StoredConnection(conn_id="db", conn_type="postgres", password="geheim", extra='{"a": 1}')


@pytest.fixture
def full(store: Store) -> Store:
    """A store with a secret of every kind."""
    store.variables.save("k", "wert")
    store.connections.save(CONNECTION)
    World(store).deferred(kwargs={"token": "hush"})
    return store


def secrets(store: Store) -> tuple[object, ...]:
    [trigger] = World(store).triggers()
    store.triggers.release("t")
    return store.variables.get("k").value, store.connections.get("db"), trigger.kwargs


def test_a_new_key_seals_everything_and_an_engine_at_work_notices(stannel, full, home):
    old = (home / "fernet.key").read_text()
    result = stannel("rotate-fernet-key", "--new")
    assert "A new key stands first in" in result.stderr
    assert "1 variables, 1 connections and the arguments of 1 triggers are encrypted with the newest" in result.stderr
    newest, before = (home / "fernet.key").read_text().split(",")
    assert before == old
    assert newest not in result.output
    everything = ("wert", CONNECTION, {"token": "hush"})
    assert secrets(Store(full.database, Vault(newest))) == everything
    assert secrets(full) == everything
    with pytest.raises(SecretUnreadable):
        Store(full.database, Vault(old)).variables.get("k")


def test_a_configured_key_in_front_is_used_for_everything(stannel, full, home):
    newest, old = Fernet.generate_key().decode(), (home / "fernet.key").read_text()
    stannel("rotate-fernet-key", env={"STANNEL__CORE__FERNET_KEY": f"{newest},{old}"})
    assert secrets(Store(full.database, Vault(newest))) == ("wert", CONNECTION, {"token": "hush"})


def test_a_configured_key_cannot_be_made_by_the_command(stannel, full, home):
    before = (home / "fernet.key").read_text()
    result = stannel("rotate-fernet-key", "--new", code=1, env={"STANNEL__CORE__FERNET_KEY": before})
    assert "set by [core] fernet_key (STANNEL__CORE__FERNET_KEY)" in result.stderr
    assert "nothing was changed" in result.stderr
    assert (home / "fernet.key").read_text() == before


def test_a_secret_whose_key_is_lost_is_named(stannel, full):
    lost = {"STANNEL__CORE__FERNET_KEY": Fernet.generate_key().decode()}
    assert "The secret of the variable 'k' cannot be decrypted" in stannel("rotate-fernet-key", code=1, env=lost).stderr
    assert full.variables.get("k").value == "wert"
