"""Promises of plug-in discovery, on real distributions in a folder of their own."""

import pytest

from stannel.errors import DuplicatePlugin, PluginBroken, PluginMissing
from stannel.plugins import load_plugin, plugin_names


@pytest.fixture
def install(tmp_path, monkeypatch):
    """Put a distribution with one entry point and one module on the import path."""

    def install(distribution, group, entry, *, module="", source="", extras=()):
        folder = tmp_path / distribution
        info = folder / f"{distribution}-1.0.dist-info"
        info.mkdir(parents=True)
        provided = "".join(f"Provides-Extra: {extra}\n" for extra in extras)
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {distribution}\nVersion: 1.0\n{provided}")
        (info / "entry_points.txt").write_text(f"[{group}]\n{entry}\n")
        if module:
            (folder / f"{module}.py").write_text(source)
        monkeypatch.syspath_prepend(folder)

    return install


def test_a_plugin_is_found_by_name_and_imported_once(install):
    install("dist_found", "t.found", "one = plugin_found:Thing", module="plugin_found", source="class Thing: ...")
    assert plugin_names("t.found") == ("one",)
    assert load_plugin("t.found", "one").__name__ == "Thing"
    assert load_plugin("t.found", "one") is load_plugin("t.found", "one")


def test_names_are_listed_without_importing_anything(install):
    install("dist_listed", "t.listed", "b = no_such_module:X\na = no_such_module:Y")
    assert plugin_names("t.listed") == ("a", "b")


def test_an_unknown_name_lists_what_is_installed(install):
    install("dist_unknown", "t.unknown", "one = plugin_unknown:Thing")
    with pytest.raises(PluginMissing, match=r"'two' of t\.unknown is not available; installed are: one") as caught:
        load_plugin("t.unknown", "two")
    assert (caught.value.kind, caught.value.name, caught.value.extra) == ("t.unknown", "two", None)


def test_a_group_nobody_knows_has_no_plugins():
    assert plugin_names("t.nobody") == ()
    with pytest.raises(PluginMissing, match="none of this kind is installed"):
        load_plugin("t.nobody", "one")


@pytest.mark.parametrize(
    ("suffix", "extras"), [("", ["kafka"]), (" [kafka]", [])], ids=["named alike", "named by entry"]
)
def test_a_missing_client_library_says_which_extra_to_install(install, suffix, extras):
    group = f"t.extra{len(extras)}"
    module = f"plugin_extra{len(extras)}"
    install(
        f"dist_extra{len(extras)}",
        group,
        f"kafka = {module}:Thing{suffix}",
        module=module,
        source="import a_client_library_nobody_has",
        extras=extras,
    )
    with pytest.raises(PluginMissing, match=r"pip install 'dist_extra\d\[kafka\]'") as caught:
        load_plugin(group, "kafka")
    assert caught.value.extra == "kafka"


@pytest.mark.parametrize(
    ("case", "source", "reason"),
    [
        ("raises", "1 / 0", "ZeroDivisionError: division by zero"),
        ("nolib", "import a_client_library_nobody_has", "ModuleNotFoundError"),
        ("noname", "", "AttributeError"),
    ],
)
def test_an_import_error_names_the_distribution(install, case, source, reason):
    module = f"plugin_{case}"
    install(f"dist_{case}", f"t.{case}", f"one = {module}:Thing", module=module, source=source)
    with pytest.raises(PluginBroken, match=reason) as caught:
        load_plugin(f"t.{case}", "one")
    assert caught.value.distribution == f"dist_{case}"
    assert f"dist_{case}" in str(caught.value)


def test_a_plugin_whose_own_module_is_gone_is_broken_whatever_its_extras(install):
    install("dist_gone", "t.gone", "kafka = plugin_gone:Thing", extras=["kafka"])
    with pytest.raises(PluginBroken, match="No module named 'plugin_gone'"):
        load_plugin("t.gone", "kafka")


def test_two_plugins_of_one_name_are_refused_with_both_names(install):
    install("dist_first", "t.double", "one = plugin_first:Thing", module="plugin_first", source="Thing = 1")
    install("dist_second", "t.double", "one = plugin_second:Thing", module="plugin_second", source="Thing = 2")
    with pytest.raises(DuplicatePlugin) as caught:
        load_plugin("t.double", "one")
    assert "dist_first (plugin_first:Thing)" in str(caught.value)
    assert "dist_second (plugin_second:Thing)" in str(caught.value)


def test_a_duplicate_disturbs_only_its_own_name(install):
    install(
        "dist_left",
        "t.partly",
        "one = plugin_left:Thing\nok = plugin_left:Thing",
        module="plugin_left",
        source="Thing = 1",
    )
    install("dist_right", "t.partly", "one = plugin_right:Thing")
    assert load_plugin("t.partly", "ok") == 1
