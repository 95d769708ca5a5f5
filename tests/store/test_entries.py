"""Variables and connections are kept sealed and given back plain."""

import pytest
from cryptography.fernet import Fernet
from store.world import KEY

from stannel.errors import SecretUnreadable, UnknownId
from stannel.store import Store
from stannel.store.entries import StoredConnection, StoredVariable
from stannel.store.vault import Vault, add_key, key_file, vault_for

FULL = StoredConnection(
    conn_id="db",
    conn_type="postgres",
    host="h",
    schema="s",
    login="me",
    password="geheim",
    port=5432,
    extra='{"a": 1}',
    description="the db",
)


def test_a_variable_is_saved_overwritten_and_deleted(world):
    variables = world.store.variables
    variables.save("k", "wert", "what for")
    assert variables.get("k") == StoredVariable("k", "wert", "what for")
    variables.save("k", "")
    assert variables.find("k") == StoredVariable("k", "", None)
    assert variables.delete("k")
    assert not variables.delete("k")
    assert variables.find("k") is None


def test_variables_are_listed_by_key(world):
    for key in ("b", "a", "ax"):
        world.store.variables.save(key, key)
    assert [one.key for one in world.store.variables.all()] == ["a", "ax", "b"]
    assert world.store.variables.keys("a") == ["a", "ax"]


def test_an_unknown_entry_is_refused_with_the_nearest(world):
    world.store.variables.save("region", "x")
    world.store.connections.save(FULL)
    with pytest.raises(UnknownId, match="region"):
        world.store.variables.get("regoin")
    with pytest.raises(UnknownId, match="db"):
        world.store.connections.get("dbb")


def test_a_connection_comes_back_whole(world):
    world.store.connections.save(FULL)
    assert world.store.connections.get("db") == FULL
    bare = StoredConnection(conn_id="bare", conn_type="http")
    world.store.connections.save(bare)
    assert world.store.connections.all() == [bare, FULL]
    assert world.store.connections.delete("db")
    assert not world.store.connections.delete("db")
    assert world.store.connections.find("db") is None


def test_secrets_are_not_in_the_database_as_they_are(world):
    world.store.connections.save(FULL)
    world.store.variables.save("k", "geheim")
    kept = world.sql("SELECT password, extra FROM connection")[0] + world.sql("SELECT value FROM variable")[0]
    assert all("geheim" not in value and '"a"' not in value for value in kept)


def test_an_old_key_still_opens_and_a_lost_one_is_named(world):
    world.store.variables.save("k", "wert")
    newest = Fernet.generate_key().decode()
    rotated = Store(world.store.database, Vault(f"{newest},{KEY}"))
    assert rotated.variables.get("k").value == "wert"
    rotated.variables.save("new", "neu")
    with pytest.raises(SecretUnreadable, match="'k'"):
        Store(world.store.database, Vault(newest)).variables.get("k")
    with pytest.raises(SecretUnreadable, match="'new'"):
        world.store.variables.get("new")


def test_a_home_gets_one_key_that_only_its_user_can_read(tmp_path):
    home = tmp_path / "home"
    key = key_file(home).read_text()
    assert key_file(home).read_text() == key
    assert (home / "fernet.key").stat().st_mode & 0o777 == 0o600
    assert [file.name for file in home.iterdir()] == ["fernet.key"]


def test_a_configured_key_wins_over_the_homes_and_leaves_no_file(tmp_path):
    sealed = vault_for(tmp_path, KEY).seal("x")
    assert Vault(KEY).open(sealed, "it") == "x"
    assert list(tmp_path.iterdir()) == []


def test_an_added_key_is_the_newest_and_the_old_ones_stay(tmp_path):
    file = key_file(tmp_path)
    old = file.read_text()
    add_key(file)
    newest, before = file.read_text().split(",")
    assert before == old
    assert newest != old
    assert file.stat().st_mode & 0o777 == 0o600
    assert [one.name for one in tmp_path.iterdir()] == ["fernet.key"]


def test_a_vault_in_use_notices_a_key_that_was_added_to_its_file(tmp_path):
    running = vault_for(tmp_path, "")
    before = running.seal("old")
    add_key(key_file(tmp_path))
    newest = Vault(key_file(tmp_path).read_text().split(",")[0])
    assert running.open(newest.seal("new"), "it") == "new"
    assert running.open(before, "it") == "old"
    assert newest.open(running.seal("later"), "it") == "later"


def test_a_vault_in_use_outlives_its_file(tmp_path):
    running = vault_for(tmp_path, "")
    sealed = running.seal("x")
    key_file(tmp_path).unlink()
    assert running.open(sealed, "it") == "x"


def test_resealing_leaves_everything_to_the_newest_key(world):
    bare = StoredConnection(conn_id="bare", conn_type="http")
    world.store.variables.save("k", "wert", "what for")
    world.store.connections.save(FULL)
    world.store.connections.save(bare)
    newest = Fernet.generate_key().decode()
    rotating = Store(world.store.database, Vault(f"{newest},{KEY}"))
    assert (rotating.variables.reseal(), rotating.connections.reseal()) == (1, 2)
    rotated = Store(world.store.database, Vault(newest))
    assert rotated.variables.all() == [StoredVariable("k", "wert", "what for")]
    assert rotated.connections.all() == [bare, FULL]


def test_resealing_refuses_what_it_cannot_open_and_changes_nothing(world):
    world.store.variables.save("a", "x")
    foreign = Store(world.store.database, Vault(Fernet.generate_key().decode()))
    foreign.variables.save("b", "y")
    foreign.connections.save(FULL)
    before = world.sql("SELECT value FROM variable ORDER BY key")
    with pytest.raises(SecretUnreadable, match="'b'"):
        world.store.variables.reseal()
    with pytest.raises(SecretUnreadable, match="'db'"):
        world.store.connections.reseal()
    assert world.sql("SELECT value FROM variable ORDER BY key") == before
