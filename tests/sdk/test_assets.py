"""Assets as authors write them, and what the engine is told of them."""

from datetime import timedelta
from typing import Any

import pytest

from stannel.errors import DagInvalid
from stannel.model.asset import (
    AllOf,
    AnyOf,
    AnyOfAlias,
    AssetAt,
    AssetNamed,
    Consumption,
    Grouping,
    ThisAsset,
)
from stannel.model.dag import DagSpec
from stannel.model.schedule import Cron, Never, OnAssets
from stannel.sdk import (
    DAG,
    Asset,
    AssetAlias,
    AssetAll,
    AssetAny,
    AssetOrTimeSchedule,
    AssetWatcher,
    CronTriggerTimetable,
    Dataset,
    Metadata,
    Model,
    asset,
    task,
)
from stannel.sdk.compile import compile_dag
from stannel.sdk.operators import EmptyOperator
from stannel.triggers.file import DirectoryFileDeleteTrigger, FileDeleteTrigger
from stannel.triggers.temporal import TimeDeltaTrigger

A, B, C = Asset("a"), Asset("b"), Asset("c")


def compiled(schedule: Any = None, **settings: Any) -> DagSpec:
    with DAG("d", schedule=schedule, **settings) as dag:
        EmptyOperator(task_id="t")
    return compile_dag(dag, fileloc="d.py")


# --- names and addresses ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("s3://bucket/key", "s3://bucket/key"),
        ("S3://Bucket/Key/", "s3://Bucket/Key"),
        ("https://host/p?b=2&a=1#part", "https://host/p?a=1&b=2"),
        ("s3://bucket/", "s3://bucket"),
        ("file:///data/", "file:///data"),
        ("x-Mine://Kept/As?It=Is#", "x-Mine://Kept/As?It=Is#"),
        ("just a text/", "just a text/"),
        ("user@host/path", "user@host/path"),
    ],
)
def test_an_address_has_one_form(given: str, kept: str) -> None:
    assert Asset(uri=given).uri == kept


@pytest.mark.filterwarnings("ignore:an asset's uri must not hold a password")
def test_a_login_in_an_address_is_left_out_and_a_password_is_warned_of() -> None:
    assert Asset("a", uri="db://me@host/x").uri == "db://host/x"
    assert Asset("a", uri="db://me:secret@host/x").uri == "db://host/x"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, TypeError),
        ({"name": ""}, ValueError),
        ({"name": "  "}, ValueError),
        ({"name": "a" * 1501}, ValueError),
        ({"name": 3}, TypeError),
        ({"name": "self"}, ValueError),
        ({"name": "context"}, ValueError),
        ({"uri": "airflow://x/y"}, ValueError),
        ({"name": "a", "group": " "}, ValueError),
        ({"name": "a", "watchers": ["w"]}, TypeError),
    ],
)
def test_what_cannot_be_an_asset_is_refused(arguments: dict[str, Any], error: type[Exception]) -> None:
    with pytest.raises(error):
        Asset(**arguments)


def test_a_missing_name_or_uri_is_the_other() -> None:
    assert (Asset("orders").uri, Asset(uri="s3://orders").name) == ("orders", "s3://orders")
    assert Asset("s3://Orders/") == Asset("s3://Orders/", "s3://Orders")


def test_kinds_have_groups_of_their_own() -> None:
    assert [one("x").group for one in (Asset, Dataset, Model)] == ["asset", "dataset", "model"]
    assert Dataset("x", group="g").group == "g"


def test_an_asset_with_watchers_is_hashable_and_compared_with_them() -> None:
    watched = Asset("a", watchers=[AssetWatcher("w", FileDeleteTrigger(filepath="/x"))])
    same = Asset("a", watchers=[AssetWatcher("w", FileDeleteTrigger(filepath="/x"))])
    other = Asset("a", watchers=[AssetWatcher("w", FileDeleteTrigger(filepath="/y"))])
    assert {watched: 1}[same] == 1
    assert watched == same
    assert watched not in (other, Asset("a"))


def test_only_triggers_for_events_can_watch() -> None:
    with pytest.raises(ValueError, match="BaseEventTrigger"):
        AssetWatcher("w", TimeDeltaTrigger(timedelta(1)))  # type: ignore[arg-type]


def test_a_reference_is_by_name_or_by_uri() -> None:
    assert Asset.ref(name="a").reference() == AssetNamed("a")
    assert Asset.ref(uri="S3://a/").reference() == AssetAt("s3://a")
    for wrong in ({}, {"name": "a", "uri": "b"}):
        with pytest.raises(TypeError):
            Asset.ref(**wrong)


# --- schedules -------------------------------------------------------------------------------------------------------

a, b, c = (ThisAsset(name, name) for name in "abc")


@pytest.mark.parametrize(
    ("schedule", "condition"),
    [
        (A, a),
        ([A, B], AllOf((a, b))),
        ((A,), AllOf((a,))),
        (A | B | C, AnyOf((a, b, c))),
        (A & B & C, AllOf((a, b, c))),
        (A & (B | C), AllOf((a, AnyOf((b, c))))),
        ([A | B, C], AllOf((AnyOf((a, b)), c))),
        (AssetAny(A, AssetAll(B, C)), AnyOf((a, AllOf((b, c))))),
        (AssetAlias("x") | Asset.ref(name="n"), AnyOf((AnyOfAlias("x"), AssetNamed("n")))),
    ],
)
def test_assets_as_a_schedule(schedule: Any, condition: Any) -> None:
    assert compiled(schedule).schedule == OnAssets(condition)


@pytest.mark.parametrize("schedule", [[A, "@daily"], [], ["a"], [A, A.per_event()]])
def test_a_mixed_or_empty_collection_is_no_schedule(schedule: Any) -> None:
    with pytest.raises(DagInvalid, match="must name assets only"):
        DAG("d", schedule=schedule)


@pytest.mark.parametrize(
    ("schedule", "policy"),
    [
        (A.per_event(), Consumption(grouping=Grouping.EACH)),
        (A.batch(), Consumption()),
        (A.batch(max=5), Consumption(most=5)),
        (A.batch(max=5, wait=timedelta(minutes=1)), Consumption(grouping=Grouping.WINDOW, most=5, seconds=60)),
        (A.latest(), Consumption(latest=True)),
        (A.debounce(2, longest=10), Consumption(grouping=Grouping.BURST, seconds=2, longest=10)),
        (A.debounce(2).latest(), Consumption(grouping=Grouping.BURST, seconds=2, latest=True)),
        (A.per_key(), Consumption(grouping=Grouping.EACH, by_key=True)),
        (A.per_key(ordered=False), Consumption(grouping=Grouping.EACH, by_key=True, ordered=False)),
        (A.batch(wait=3).per_key(), Consumption(grouping=Grouping.WINDOW, seconds=3, by_key=True)),
        (A.per_event().rate_limit(2, per=60), Consumption(grouping=Grouping.EACH, rate_runs=2, rate_seconds=60)),
    ],
)
def test_how_events_become_runs_is_said_on_the_schedule(schedule: Any, policy: Consumption) -> None:
    assert compiled(schedule).schedule == OnAssets(a, policy)


@pytest.mark.parametrize(
    "wrong", [lambda: A.batch(max=0), lambda: A.batch(wait=-1), lambda: A.debounce(0), lambda: A.rate_limit(0, per=1)]
)
def test_a_policy_that_could_not_work_is_refused(wrong: Any) -> None:
    with pytest.raises(ValueError, match="takes a"):
        wrong()


def test_a_schedule_of_assets_and_time() -> None:
    clock = CronTriggerTimetable("0 1 * * *", timezone="Europe/Berlin")
    spec = compiled(AssetOrTimeSchedule(timetable=clock, assets=(A & B).per_event()))
    cron = Cron("0 1 * * *", "Europe/Berlin", False)
    assert spec.schedule == OnAssets(AllOf((a, b)), Consumption(grouping=Grouping.EACH), cron)
    assert spec.timezone == "Europe/Berlin"
    limited = AssetOrTimeSchedule(timetable=clock, assets=[A]).rate_limit(1, per=5).compiled()
    assert isinstance(limited, OnAssets)
    assert limited.time == cron
    with pytest.raises(ValueError, match="about time"):
        AssetOrTimeSchedule(timetable=A.per_event(), assets=A)


def test_a_dag_without_assets_says_nothing_of_them() -> None:
    spec = compiled("@daily")
    assert (spec.assets, spec.aliases, spec.tasks[0].outlets) == ((), (), ())
    assert compiled(None).schedule == Never()


# --- inlets, outlets, watchers ---------------------------------------------------------------------------------------


def test_inlets_and_outlets_of_tasks_are_known() -> None:
    with DAG("d", schedule=None) as dag:

        @task(outlets=A, inlets=[B, Asset.ref(name="n"), "what the author likes"])
        def plain() -> None: ...

        @task(outlets=[AssetAlias("x", group="g")])
        def mapped(number: int) -> None: ...

        plain()
        mapped.expand(number=[1, 2])
        EmptyOperator(task_id="empty", outlets=[C])
    spec = compile_dag(dag, fileloc="d.py")
    tasks = {one.task_id: one for one in spec.tasks}
    assert (tasks["plain"].outlets, tasks["plain"].inlets) == ((a,), (b, AssetNamed("n")))
    assert tasks["mapped"].outlets == (AnyOfAlias("x"),)
    # Somebody has to emit the event of an empty task.
    assert not tasks["empty"].is_empty
    assert [one.name for one in spec.assets] == ["a", "b", "c"]
    assert [(one.name, one.group) for one in spec.aliases] == [("x", "g")]


def test_watchers_travel_with_their_asset() -> None:
    watched = Asset("a", watchers=[AssetWatcher("w", FileDeleteTrigger(filepath="/x"))])
    [spec] = compiled(watched).assets
    [watcher] = spec.watchers
    assert (watcher.name, watcher.classpath) == ("w", "stannel.triggers.file.FileDeleteTrigger")
    assert watcher.kwargs["filepath"] == "/x"


def test_watchers_that_share_a_stream_say_so() -> None:
    trigger = DirectoryFileDeleteTrigger(directory="/in", filename="a", poke_interval=2)
    other = DirectoryFileDeleteTrigger(directory="/in", filename="b", poke_interval=2)
    keys = []
    for name, one in (("one", trigger), ("two", other)):
        watched = Asset(name, watchers=[AssetWatcher("w", one)])
        [spec] = compiled(watched).assets
        keys.append(spec.watchers[0].stream_key)
    assert keys[0] is not None
    assert keys[0] == keys[1]


def test_an_extra_that_cannot_travel_is_an_error_of_its_dag() -> None:
    with pytest.raises(Exception, match="the extra of the asset 'a'"):
        compiled(Asset("a", extra={"x": object()}))


# --- @asset ----------------------------------------------------------------------------------------------------------


@asset(schedule="@daily", uri="s3://numbers", watchers=[AssetWatcher("w", FileDeleteTrigger(filepath="/x"))])
def numbers(self: Any, context: Any, raw: Any, outlet_events: Any, size: int = 3) -> None:
    """Counts."""


@asset.multi(schedule=numbers, outlets=[A, B])
@task(retries=2)
def several() -> None: ...


def test_a_function_is_an_asset_and_a_dag_of_one_task() -> None:
    with DAG("d", schedule=numbers) as dag:
        EmptyOperator(task_id="t")
    [spec] = compile_dag(dag, fileloc="d.py").assets
    assert (spec.name, spec.uri, len(spec.watchers)) == ("numbers", "s3://numbers", 1)


def test_the_dag_of_an_asset_reads_what_its_parameters_name(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[DAG] = []
    monkeypatch.setattr("stannel.sdk.building.register_dag", made.append)
    asset(schedule="@daily", uri="s3://numbers")(numbers.function)
    asset.multi(schedule=numbers, outlets=[A, B])(task(retries=2)(several.function))
    first, second = (compile_dag(dag, fileloc="d.py") for dag in made)
    assert (first.dag_id, first.doc, first.catchup) == ("numbers", "Counts.", False)
    [only] = first.tasks
    assert (only.task_id, only.outlets, only.inlets) == (
        "numbers", (ThisAsset("numbers", "s3://numbers"),), (AssetNamed("raw"),),
    )  # fmt: skip
    [only] = second.tasks
    assert (only.outlets, only.retry.retries) == ((a, b), 2)
    assert second.schedule == OnAssets(ThisAsset("numbers", "s3://numbers"))


def test_what_cannot_be_an_asset_function_is_refused() -> None:
    def nested() -> None: ...

    with pytest.raises(ValueError, match="nested"):
        asset(schedule=None)(nested)
    with pytest.raises(TypeError, match=r"write @asset\(schedule=...\)"):
        asset(nested)
    with pytest.raises(TypeError, match=r"cannot have \*args"):
        asset(schedule=None)(_variable)
    with pytest.raises(TypeError, match="cannot have outlets"):
        asset(schedule=None)(task(outlets=[A])(several.function))
    with pytest.raises(TypeError, match="list of assets"):
        asset.multi(schedule=None, outlets=[])


def _variable(*args: Any) -> None: ...


def test_metadata_says_more_about_an_asset() -> None:
    assert Metadata(A) == Metadata(A, {}, None)
