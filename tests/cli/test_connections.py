"""Connections from the command line."""

import json

URI = "postgres://me:s3cret@db.example:5432/sales?sslmode=require"


def test_a_uri_is_taken_apart(stannel):
    stannel("connections", "add", "warehouse", "--uri", URI)
    row = stannel.json("connections", "get", "warehouse", "--show-secrets")
    assert (row["conn_type"], row["host"], row["port"], row["schema"], row["login"], row["password"]) == (
        "postgres",
        "db.example",
        5432,
        "sales",
        "me",
        "s3cret",
    )
    assert json.loads(row["extra"]) == {"sslmode": "require"}


def test_secrets_are_hidden_unless_asked_for(stannel):
    stannel("connections", "add", "warehouse", "--uri", URI)
    for args in (("list",), ("list", "-o", "json"), ("get", "warehouse"), ("get", "warehouse", "-o", "yaml")):
        assert "s3cret" not in stannel("connections", *args).output


def test_a_connection_may_be_given_in_parts_or_as_json(stannel):
    stannel("connections", "add", "api", "--conn-type", "http", "--host", "api.example", "--description", "the api")
    stannel("connections", "add", "other", "--json", '{"conn_type": "http", "host": "h", "extra": {"a": 1}}')
    rows = stannel.json("connections", "list")
    assert [(row["conn_id"], row["conn_type"], row["host"], row["description"]) for row in rows] == [
        ("api", "http", "api.example", "the api"),
        ("other", "http", "h", None),
    ]


def test_a_connection_must_be_given_in_exactly_one_way(stannel):
    stannel("connections", "add", "a", code=2)
    stannel("connections", "add", "a", "--uri", URI, "--host", "h", code=2)
    stannel("connections", "add", "a", "--host", "h", code=2)


def test_an_existing_connection_is_overwritten_only_on_request(stannel):
    stannel("connections", "add", "a", "--uri", URI)
    assert "--replace" in stannel("connections", "add", "a", "--uri", "http://h", code=1).stderr
    stannel("connections", "add", "a", "--uri", "http://h", "--replace")
    assert stannel.json("connections", "get", "a")["conn_type"] == "http"


def test_a_bad_uri_is_refused_without_a_traceback(stannel):
    result = stannel("connections", "add", "a", "--uri", "no scheme at all", code=1)
    assert "Nothing was stored." in result.stderr
    assert stannel.json("connections", "list") == []


def test_an_export_can_be_imported(stannel, tmp_path):
    file = tmp_path / "connections.json"
    stannel("connections", "add", "a", "--uri", URI, "--description", "sales")
    before = stannel.json("connections", "get", "a", "--show-secrets")
    stannel("connections", "export", str(file))
    stannel("connections", "delete", "a")
    stannel("connections", "get", "a", code=1)
    stannel("connections", "import", str(file))
    assert stannel.json("connections", "get", "a", "--show-secrets") == before


def test_one_bad_connection_in_a_file_leaves_everything_as_it_was(stannel, tmp_path):
    file = tmp_path / "connections.json"
    file.write_text(json.dumps({"good": "http://h", "bad": 5}))
    assert "'bad' is neither a URI nor an object" in stannel("connections", "import", str(file), code=1).stderr
    assert stannel.json("connections", "list") == []
