"""Pools from the command line."""


def test_a_pool_is_made_changed_and_deleted(stannel):
    stannel("pools", "set", "warehouse", "4", "--description", "queries", "--include-deferred")
    stannel("pools", "set", "warehouse", "5")
    assert stannel.json("pools", "get", "warehouse") == {
        "name": "warehouse",
        "slots": 5,
        "used": 0,
        "free": 5,
        "include_deferred": True,
        "description": "queries",
    }
    stannel("pools", "delete", "warehouse")
    assert "There is no pool 'warehouse'" in stannel("pools", "get", "warehouse", code=1).stderr


def test_a_pool_without_a_limit_has_no_number_of_free_slots(stannel):
    assert "has no limit" in stannel("pools", "set", "free", "-1").stderr
    assert stannel.json("pools", "get", "free")["free"] is None


def test_the_default_pool_cannot_be_deleted(stannel):
    assert "cannot be deleted" in stannel("pools", "delete", "default_pool", code=1).stderr


def test_a_misspelt_pool_gets_a_suggestion(stannel):
    assert "did you mean default_pool?" in stannel("pools", "get", "defaultpool", code=1).stderr


def test_slots_must_be_a_number(stannel):
    stannel("pools", "set", "a", "many", code=2)
    stannel("pools", "set", "a", "-2", code=2)
