"""Whose code a file is."""

import asyncio
import json

import pytest

from stannel.triggerer.host import life
from stannel.triggerer.host.places import is_authors, is_foreign, is_hosts
from stannel.triggers import base


@pytest.mark.parametrize(
    ("file", "hosts", "foreign", "authors"),
    [
        (life.__file__, True, False, False),
        (base.__file__, False, False, False),
        (json.__file__, False, False, False),
        (asyncio.__file__, False, False, False),
        ("<frozen importlib._bootstrap>", False, False, False),
        (pytest.__file__, False, True, False),
        ("/dags/mine.py", False, True, True),
    ],
)
def test_files_are_told_apart(file: str, hosts: bool, foreign: bool, authors: bool):
    assert (is_hosts(file), is_foreign(file), is_authors(file)) == (hosts, foreign, authors)
