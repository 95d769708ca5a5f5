"""Promises of the secret mask."""

import json
from urllib.parse import quote, quote_plus

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from stannel.model.masking import SecretMask

secret_texts = st.text(min_size=5).filter(lambda text: bool(text.strip()))


def mask_of(*secrets: str) -> SecretMask:
    mask = SecretMask()
    for secret in secrets:
        mask.add(secret)
    return mask


@given(st.lists(secret_texts, min_size=1, max_size=5), st.data())
@example(["XXXXX", "a***b"], None)
def test_no_added_secret_survives_in_redacted_text(secrets, data):
    mask = mask_of(*secrets)
    pieces = st.one_of(st.text(max_size=8), st.sampled_from(secrets), st.sampled_from(["*", "***"]))
    parts = data.draw(st.lists(pieces, max_size=12)) if data else ["a", "XXXXX", "b"]
    redacted = mask.redact_text("".join(parts))
    assert [secret for secret in secrets if secret in redacted] == []


@given(secret_texts)
def test_no_quoted_form_of_a_secret_survives(secret):
    mask = mask_of(secret)
    quoted = [
        quote(secret, safe=""),
        quote(secret),
        quote_plus(secret),
        json.dumps(secret),
        json.dumps(secret, ensure_ascii=False),
        repr(secret),
    ]
    for form in quoted:
        body = form.strip("\"'") if form[0] in "\"'" else form
        assert body not in mask.redact_text(f"before {form} after")


@given(st.text())
def test_a_text_without_secrets_is_left_alone(text):
    assert SecretMask().redact_text(text) == text


def test_the_text_around_a_secret_stays():
    assert mask_of("hunter22").redact_text("login joe:hunter22@db, again hunter22") == "login joe:***@db, again ***"


def test_the_longer_of_two_secrets_is_masked_whole():
    assert mask_of("hunter", "hunter22-more").redact_text("hunter22-more, hunter") == "***, ***"


def test_overlapping_secrets_show_neither_end():
    assert mask_of("joe:hunt", "hunter22").redact_text("at joe:hunter22!") == "at ***!"


@pytest.mark.parametrize("harmless", ["", "     ", "\n\n\n\n\n\n", "abcd", "  a  ", None, 12345, True])
def test_what_is_too_short_to_be_a_secret_is_never_masked(harmless):
    mask = SecretMask()
    mask.add(harmless)
    text = "abcd 12345 True None      end a b\n\n\n\n\n\n"
    assert mask.redact_text(text) == text


def test_a_secret_read_from_a_file_is_found_without_its_line_end():
    assert mask_of("hunter22\n").redact_text("it is hunter22") == "it is ***"


def test_each_line_of_a_long_secret_is_masked_on_its_own():
    mask = mask_of("-----BEGIN KEY-----\nMIIEowIBAAKCAQEA\nabc=\n-----END KEY-----\n")
    assert mask.redact_text("MIIEowIBAAKCAQEA") == "***"
    assert mask.redact_text("abc=") == "abc="


def test_bytes_are_masked_as_the_text_they_hold():
    mask = SecretMask()
    mask.add(b"hunter22")
    assert mask.redact_text("it is hunter22") == "it is ***"


@pytest.mark.parametrize(
    "name",
    ["password", "DB_PASSWORD", "apiKey", "x-api-key", "client secret", "accessToken", "privateKey", "Authorization"],
)
def test_a_name_with_a_sensitive_word_is_sensitive(name):
    assert SecretMask().is_sensitive_name(name)


@pytest.mark.parametrize("name", ["", "host", "login", "key", "pass", "region_name"])
def test_an_ordinary_name_is_not_sensitive(name):
    assert not SecretMask().is_sensitive_name(name)


def test_configured_names_are_sensitive_too():
    mask = SecretMask(["kennwort", "密码", " "])
    assert mask.is_sensitive_name("DB-Kennwort")
    assert mask.is_sensitive_name("密码")
    assert not mask.is_sensitive_name("host")


def test_a_value_with_a_name_is_masked_only_when_the_name_is_sensitive():
    mask = SecretMask()
    mask.add("eu-west-1", name="region")
    mask.add("hunter22", name="db_password")
    assert mask.redact_text("eu-west-1 hunter22") == "eu-west-1 ***"


def test_every_text_of_a_nameless_structure_is_masked():
    mask = SecretMask()
    mask.add({"a": ["first-one", ("second-one", {"b": "third-one"})]})
    assert mask.redact_text("first-one second-one third-one a b") == "*** *** *** a b"


def test_in_a_named_structure_only_sensitive_keys_are_masked():
    mask = SecretMask()
    mask.add({"region": "eu-west-1", "nested": [{"token": "hunter22"}]}, name="extra")
    assert mask.redact_text("eu-west-1 hunter22") == "eu-west-1 ***"


def test_everything_below_a_sensitive_key_is_masked():
    mask = SecretMask()
    mask.add({"keyfile_dict": {"id": "key-number-7"}}, name="extra")
    assert mask.redact_text("key-number-7") == "***"


def test_redacting_a_structure_keeps_its_shape():
    mask = mask_of("hunter22")
    value = {"a": ["x hunter22", 7, None], "t": ("hunter22", True), 3: {"hunter22"}, "hunter22": "key"}
    assert mask.redact(value) == {"a": ["x ***", 7, None], "t": ("***", True), 3: {"***"}, "***": "key"}


def test_a_sensitive_key_is_redacted_whole_but_an_empty_one_shows_that_it_is_empty():
    value = {"password": {"old": 1, "new": 2}, "token": 12, "secret": "", "api_key": None, "host": "db"}
    expected = {"password": "***", "token": "***", "secret": "", "api_key": None, "host": "db"}
    assert SecretMask().redact(value) == expected


def test_a_value_redacted_under_a_sensitive_name_is_hidden():
    assert SecretMask().redact("x", name="password") == "***"
    assert SecretMask().redact("x", name="host") == "x"


def test_a_structure_that_contains_itself_is_redacted_to_an_end():
    loop: list[object] = ["hunter22"]
    loop.append(loop)
    mask = SecretMask()
    mask.add(loop)
    assert "hunter22" not in repr(mask.redact(loop))


def test_the_original_structure_is_not_changed():
    value = {"a": ["hunter22"]}
    mask_of("hunter22").redact(value)
    assert value == {"a": ["hunter22"]}
