"""Ignore files are read the way `.gitignore` is."""

from pathlib import Path

import pytest

from stannel.parser.ignores import is_ignored, rules_in


def ignored(folder: Path, lines: str, path: str, *, is_folder: bool = False, base: str = "") -> bool:
    (folder / ".stannelignore").write_text(lines)
    return is_ignored(path, rules_in(folder, base), is_folder=is_folder)


@pytest.mark.parametrize(
    ("pattern", "path", "expected"),
    [
        ("draft.py", "draft.py", True),
        ("draft.py", "team/draft.py", True),
        ("draft.py", "team/my_draft.py", False),
        ("draft_*.py", "draft_1.py", True),
        ("draft_*.py", "draft_1/a.py", False),
        ("draft_?.py", "draft_12.py", False),
        ("draft_[0-4].py", "draft_3.py", True),
        ("draft_[!0-4].py", "draft_3.py", False),
        ("/draft.py", "draft.py", True),
        ("/draft.py", "team/draft.py", False),
        ("team/draft.py", "team/draft.py", True),
        ("team/draft.py", "other/team/draft.py", False),
        ("**/draft.py", "a/b/draft.py", True),
        ("**/draft.py", "draft.py", True),
        ("team/**/draft.py", "team/draft.py", True),
        ("team/**/draft.py", "team/a/b/draft.py", True),
        ("team/**", "team/a/b.py", True),
        ("team/**", "teams/a.py", False),
        ("a.py", "axpy", False),
        ("\\#odd.py", "#odd.py", True),
        ("# a.py", "a.py", False),
        ("[unclosed", "[unclosed", True),
        ("", "a.py", False),
    ],
)
def test_a_pattern_leaves_out_what_it_says(tmp_path, pattern, path, expected):
    assert ignored(tmp_path, pattern, path) is expected


def test_a_slash_at_the_end_means_folders_only(tmp_path):
    assert ignored(tmp_path, "drafts/", "drafts", is_folder=True)
    assert not ignored(tmp_path, "drafts/", "drafts")


def test_the_last_match_decides(tmp_path):
    assert not ignored(tmp_path, "*.py\n!keep.py", "keep.py")
    assert ignored(tmp_path, "*.py\n!keep.py", "drop.py")
    assert ignored(tmp_path, "!keep.py\n*.py", "keep.py")


def test_rules_of_a_folder_hold_below_it_only(tmp_path):
    assert ignored(tmp_path, "/draft.py", "team/draft.py", base="team/")
    assert not ignored(tmp_path, "draft.py", "draft.py", base="team/")


def test_the_name_airflow_gave_the_file_is_known(tmp_path):
    (tmp_path / ".airflowignore").write_text("draft.py\n")
    assert is_ignored("draft.py", rules_in(tmp_path, ""), is_folder=False)
