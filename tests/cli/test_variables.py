"""Variables from the command line."""

import json
import stat


def test_a_variable_comes_back_as_it_was_stored(stannel):
    stannel("variables", "set", "region", "eu west\n1")
    assert stannel("variables", "get", "region").stdout == "eu west\n1\n"


def test_a_value_may_come_from_standard_input(stannel):
    stannel("variables", "set", "key", "-", stdin="from a pipe\n")
    assert stannel("variables", "get", "key").stdout == "from a pipe\n"


def test_a_missing_variable_is_refused_with_the_nearest_key(stannel):
    stannel("variables", "set", "region", "eu")
    assert "did you mean region?" in stannel("variables", "get", "regoin", code=1).stderr


def test_a_default_makes_a_missing_variable_a_success(stannel):
    assert stannel("variables", "get", "nothing", "--default", "none").stdout == "none\n"


def test_values_are_listed_only_on_request(stannel):
    stannel("variables", "set", "token", "s3cret", "--description", "for the api")
    assert "s3cret" not in stannel("variables", "list").output
    assert "s3cret" not in stannel("variables", "list", "-o", "json").output
    [row] = stannel.json("variables", "list", "--show-values")
    assert row == {"key": "token", "value": "s3cret", "description": "for the api"}


def test_changing_a_value_keeps_the_description(stannel):
    stannel("variables", "set", "a", "1", "--description", "one")
    stannel("variables", "set", "a", "2")
    assert stannel.json("variables", "get", "a") == {"key": "a", "value": "2", "description": "one"}


def test_a_deleted_variable_is_gone_and_cannot_be_deleted_twice(stannel):
    stannel("variables", "set", "a", "1")
    stannel("variables", "delete", "a")
    stannel("variables", "delete", "a", code=1)


def test_an_export_can_be_imported_and_is_readable_by_its_user_only(stannel, tmp_path):
    stannel("variables", "set", "a", "1", "--description", "one")
    stannel("variables", "set", "b", '{"x": 1}')
    file = tmp_path / "variables.json"
    stannel("variables", "export", str(file))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    before = stannel.json("variables", "list", "--show-values")
    for key in ("a", "b"):
        stannel("variables", "delete", key)
    stannel("variables", "import", str(file))
    assert stannel.json("variables", "list", "--show-values") == before


def test_an_import_stores_other_values_as_json_and_may_keep_what_exists(stannel, tmp_path):
    stannel("variables", "set", "kept", "old")
    file = tmp_path / "variables.json"
    file.write_text(json.dumps({"number": 5, "object": {"value": 1, "other": 2}, "kept": "new"}))
    result = stannel("variables", "import", str(file), "--keep")
    assert "2 variables stored; 1 existed already" in result.stderr
    assert stannel("variables", "get", "number").stdout == "5\n"
    assert json.loads(stannel("variables", "get", "object").stdout) == {"value": 1, "other": 2}
    assert stannel("variables", "get", "kept").stdout == "old\n"


def test_a_file_that_is_no_object_is_refused_by_name(stannel, tmp_path):
    file = tmp_path / "bad.json"
    for content in ("[1]", "{oops"):
        file.write_text(content)
        assert f"{file} does not hold a JSON object" in stannel("variables", "import", str(file), code=1).stderr
