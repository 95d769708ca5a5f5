"""A secret shows itself only to who asks."""

from stannel.settings import Secret


def test_a_secret_shows_only_when_revealed():
    secret = Secret("hunter22")
    assert f"{secret} {secret!r} {[secret]}" == "*** *** [***]"
    assert secret.reveal() == "hunter22"


def test_secrets_compare_by_what_they_hold():
    assert Secret("a") == Secret("a")
    assert Secret("a") != Secret("b")
    assert Secret("a") != "a"
    assert len({Secret("a"), Secret("a")}) == 1
    assert not Secret("")
