"""Every message and structure, held against the facts of the two published schemas."""

import json
import re
from enum import EnumType
from pathlib import Path
from types import NoneType
from typing import Any, Literal, get_args, get_origin

import msgspec
import pytest
from msgspec import NODEFAULT, UNSET, UnsetType, structs

from stannel.protocol import data, replies, requests
from stannel.protocol.data import Nested, unmapped
from stannel.protocol.replies import ErrorResponse, Reply
from stannel.protocol.requests import Request, Terminal
from stannel.protocol.schema import ErrorCode

HERE = Path(__file__).parent
JUNE = json.loads((HERE / "messages-2026-06-16.json").read_text())
OCTOBER = json.loads((HERE / "messages-2026-10-30.json").read_text())

# Stannel's own messages, which no other runtime knows.
OUR_MESSAGES = {requests.ChangeStateStore}
REQUESTS = {kind.__name__: kind for kind in get_args(Request) if kind not in OUR_MESSAGES}
REPLIES = {kind.__name__: kind for kind in get_args(Reply)}
NESTED = {kind.__name__: kind for kind in Nested.__subclasses__()}
STRUCTS = REQUESTS | REPLIES | NESTED

OURS = {("TIRunContext", "stannel")}
BASIC = {str: "str", int: "int", float: "float", bool: "bool", NoneType: "null", Any: "json"}


def tag_of(kind):
    return kind.__struct_config__.tag_field


def fields_of(name):
    return {field.name: field for field in structs.fields(STRUCTS[name]) if (name, field.name) not in OURS}


def described(schema, name):
    """A structure's fields in a schema, without its tag. Empty: this schema does not have the structure."""
    tag = tag_of(STRUCTS[name])
    return {field: facts for field, facts in schema["structs"].get(name, {}).items() if field != tag}


def demands(name, field):
    """Whether each schema that has the field requires it."""
    return [facts[field]["required"] for facts in (described(JUNE, name), described(OCTOBER, name)) if field in facts]


def spoken(hint):
    """Our annotation in the words of the fact files, as a set of alternatives."""
    if get_origin(hint) is Literal:
        return {json.dumps(value) for value in get_args(hint)}
    if isinstance(hint, EnumType):
        return {json.dumps(member.value) for member in hint}
    if hint is UnsetType:
        return set()
    if hint in BASIC:
        return {BASIC[hint]}
    if isinstance(hint, type) and issubclass(hint, msgspec.Struct):
        return {hint.__name__}
    if hint is data.Instant:
        return {"datetime"}
    if get_origin(hint) is list:
        return {f"list<{'|'.join(sorted(spoken(get_args(hint)[0])))}>"}
    if get_origin(hint) is tuple:
        return {f"[{','.join('|'.join(spoken(part)) for part in get_args(hint))}]"}
    if get_origin(hint) is dict:
        return {"map" if get_args(hint)[1] is Any else f"map<{'|'.join(spoken(get_args(hint)[1]))}>"}
    if hint.__class__.__name__ == "UnionType" or get_origin(hint) is not None:
        return set().union(*map(spoken, get_args(hint)))
    return {hint.__name__.replace("timedelta", "duration")}


def stated(schema, text):
    """A schema's type in the same words: references to enumerations resolved, identifiers and paths as text."""
    text = re.sub(r"map<json(\|null)?>|ArgValueSchema", "map", text).replace("uuid", "str").replace("path", "str")
    text = text.replace("TaskArgBinding", "LiteralArgBinding|XComArgBinding").replace("json|null", "json")
    listed = re.fullmatch(r"(list<.*>)(\|null)?", text)
    if listed:
        inner = "|".join(sorted(listed[1][5:-1].split("|")))
        return {f"list<{inner}>"} | ({"null"} if listed[2] else set())
    alternatives = set(text.split("|"))
    for name in alternatives & schema["enums"].keys():
        alternatives = alternatives - {name} | {json.dumps(value) for value in schema["enums"][name]}
    return alternatives


def test_every_message_and_structure_of_the_schema_exists_and_no_other():
    assert set(OCTOBER["structs"]) == set(STRUCTS)
    assert set(JUNE["structs"]) <= set(STRUCTS)


def test_the_schema_has_55_requests_and_29_replies_and_one_that_is_both():
    assert (len(REQUESTS), len(set(REPLIES) - set(REQUESTS))) == (55, 29)
    assert set(REPLIES) & set(REQUESTS) == {"CreateHITLDetailPayload"}


@pytest.mark.parametrize("name", sorted(REQUESTS | REPLIES))
def test_a_message_is_tagged_with_its_exact_name(name):
    config = STRUCTS[name].__struct_config__
    assert (config.tag_field, config.tag) == ("type", name)
    assert OCTOBER["structs"][name]["type"]["type"] == json.dumps(name)


@pytest.mark.parametrize("name", sorted(STRUCTS))
def test_unknown_keys_are_ignored_everywhere(name):
    assert not STRUCTS[name].__struct_config__.forbid_unknown_fields


@pytest.mark.parametrize("name", sorted(STRUCTS))
def test_a_structure_has_exactly_the_fields_of_the_schema(name):
    assert set(fields_of(name)) == set(described(OCTOBER, name))
    assert set(described(JUNE, name)) <= set(fields_of(name))


@pytest.mark.parametrize("name", sorted(STRUCTS))
def test_every_field_takes_what_either_schema_allows(name):
    for field_name, field in fields_of(name).items():
        allowed = stated(OCTOBER, described(OCTOBER, name)[field_name]["type"])
        if field_name in described(JUNE, name):
            allowed |= stated(JUNE, described(JUNE, name)[field_name]["type"])
        assert spoken(field.type) == allowed - ({"null"} if "json" in allowed else set()), field_name


@pytest.mark.parametrize("name", sorted(REQUESTS))
def test_a_request_demands_a_field_exactly_if_both_schemas_do(name):
    for field_name, field in fields_of(name).items():
        assert field.required == all(demands(name, field_name)), field_name


@pytest.mark.parametrize("name", sorted(REPLIES | NESTED))
def test_what_either_schema_requires_is_always_sent(name):
    for field_name, field in fields_of(name).items():
        if any(demands(name, field_name)):
            assert field.default is not UNSET, field_name
    assert not STRUCTS[name].__struct_config__.omit_defaults


@pytest.mark.parametrize("name", sorted(STRUCTS))
def test_defaults_are_those_of_the_schema(name):
    facts = described(OCTOBER, name)
    for field_name, field in fields_of(name).items():
        if field.default in (NODEFAULT, UNSET) or "default" not in facts[field_name]:
            continue
        assert field.default == facts[field_name]["default"], field_name


def test_the_error_codes_are_the_closed_set_of_the_schema():
    assert {code.value for code in ErrorCode} == set(OCTOBER["enums"]["ErrorType"]) == set(JUNE["enums"]["ErrorType"])
    assert len(ErrorCode) == 10
    assert ErrorResponse().error is ErrorCode.GENERIC_ERROR


def test_the_terminal_messages_are_the_six_that_end_an_attempt():
    names = {kind.__name__ for kind in get_args(Terminal)}
    assert names == {"SucceedTask", "TaskState", "RetryTask", "DeferTask", "RescheduleTask", "AwaitInputTask"}


@pytest.mark.parametrize(("sent", "row"), [(None, -1), (-1, -1), (-7, -1), (0, 0), (3, 3)])
def test_nil_and_every_negative_map_index_mean_unmapped_and_zero_does_not(sent, row):
    assert unmapped(sent) == row


def test_secrets_do_not_show_when_a_message_is_printed():
    login = {"conn_id": "db", "conn_type": "x", "host": None, "schema": None, "login": "me", "port": None}
    printed = [
        requests.MaskSecret("s3cret"),
        requests.PutVariable("api_key", "s3cret", None),
        replies.VariableResult("api_key", "s3cret"),
        replies.ConnectionResult(**login, password="s3cret", extra='{"k": "s3cret"}'),
        data.VariableResponse(key="api_key", value="s3cret"),
        data.ConnectionResponse(**login, password="s3cret", extra="s3cret"),
    ]
    assert [message for message in printed if "s3cret" in repr(message)] == []
