import pytest
from hypothesis import given
from hypothesis import strategies as st

from stannel.model.plan import Candidate
from stannel.scheduler.choose import Limits, Pool, Usage, choose


def one(pk: int, *, run: int = 1, task: str = "t", pool: str = "p", slots: int = 1, dag: str = "d") -> Candidate:
    return Candidate(pk=pk, run_pk=run, dag_id=dag, task_id=task, pool=pool, pool_slots=slots, priority=1)


def many(count: int) -> list[Candidate]:
    return [one(pk) for pk in range(count)]


ROOMY = {"p": Pool(total=None)}


@pytest.mark.parametrize(
    ("candidates", "usage", "chosen"),
    [
        ([], Usage(pools={}), []),
        (many(3), Usage(pools=ROOMY), [0, 1, 2]),
        (many(3), Usage(pools={"p": Pool(total=5, free=2)}), [0, 1]),
        (many(3), Usage(pools={"p": Pool(total=5, free=0)}), []),
        (many(3), Usage(pools={"p": Pool(total=5, free=-1)}), []),
        (many(3), Usage(pools=ROOMY, limits=Limits(parallelism=2)), [0, 1]),
        (many(3), Usage(pools=ROOMY, limits=Limits(parallelism=2), running=1), [0]),
        (many(3), Usage(pools=ROOMY, limits=Limits(per_run={1: 2})), [0, 1]),
        (many(3), Usage(pools=ROOMY, limits=Limits(per_run={1: 2}), per_run={1: 1}), [0]),
        (many(3), Usage(pools=ROOMY, limits=Limits(per_run={9: 0})), [0, 1, 2]),
        (many(3), Usage(pools=ROOMY, limits=Limits(per_task={("d", "t"): 2}), per_task={("d", "t"): 1}), [0]),
        (many(3), Usage(pools=ROOMY, limits=Limits(per_task={("other", "t"): 0})), [0, 1, 2]),
        (
            [one(0), one(1, run=2), one(2), one(3, run=2)],
            Usage(pools=ROOMY, limits=Limits(per_task_in_run={("d", "t"): 1})),
            [0, 1],
        ),
        ([one(0, slots=3), one(1)], Usage(pools={"p": Pool(total=4, free=4)}), [0, 1]),
    ],
)
def test_candidates_are_taken_in_order_as_far_as_limits_allow(
    candidates: list[Candidate], usage: Usage, chosen: list[int]
) -> None:
    choice = choose(candidates, usage)
    assert choice.chosen == chosen
    assert set(choice.blocked) == {one.pk for one in candidates} - set(chosen)


def test_a_full_pool_or_run_does_not_starve_the_others() -> None:
    usage = Usage(
        pools={"full": Pool(total=1, free=0), "p": Pool(total=9, free=9)}, limits=Limits(per_run={1: 1}), per_run={1: 1}
    )
    choice = choose([one(0, pool="full", run=2), one(1, run=1), one(2, run=2)], usage)
    assert choice.chosen == [2]
    assert (choice.exhausted_pools, choice.exhausted_runs) == ({"full"}, {1})


def test_a_task_that_needs_many_slots_is_not_overtaken_for_ever() -> None:
    usage = Usage(pools={"p": Pool(total=4, free=2)})
    choice = choose([one(0, slots=3), one(1), one(2)], usage)
    assert choice.chosen == []
    assert choice.exhausted_pools == {"p"}
    assert choice.blocked[0] == "It waits for 3 slots of the pool 'p'; 2 are free."


def test_a_task_that_can_never_fit_its_pool_says_so_and_holds_nobody_up() -> None:
    choice = choose([one(0, slots=5), one(1)], Usage(pools={"p": Pool(total=4, free=4)}))
    assert choice.chosen == [1]
    assert "asks for 5 slots of the pool 'p', which has only 4" in choice.blocked[0]


def test_a_task_held_up_by_its_run_does_not_hold_its_pool() -> None:
    usage = Usage(pools={"p": Pool(total=4, free=2)}, limits=Limits(per_run={1: 0}))
    assert choose([one(0, slots=3), one(1, run=2)], usage).chosen == [1]


def test_an_unknown_pool_is_named() -> None:
    choice = choose([one(0, pool="gone")], Usage(pools=ROOMY))
    assert choice.blocked[0].startswith("There is no pool 'gone'")


@pytest.mark.parametrize(
    ("usage", "word"),
    [
        (Usage(pools=ROOMY, limits=Limits(parallelism=0)), "parallelism"),
        (Usage(pools=ROOMY, limits=Limits(per_run={1: 0})), "max_active_tasks"),
        (Usage(pools=ROOMY, limits=Limits(per_task={("d", "t"): 0})), "max_active_tis_per_dag)"),
        (Usage(pools=ROOMY, limits=Limits(per_task_in_run={("d", "t"): 0})), "max_active_tis_per_dagrun"),
        (Usage(pools={"p": Pool(total=1, free=0)}), "pool 'p'"),
    ],
)
def test_a_blocked_task_names_the_setting_that_holds_it(usage: Usage, word: str) -> None:
    assert word in choose([one(0)], usage).blocked[0]


def test_the_usage_given_is_left_as_it_was() -> None:
    usage = Usage(pools={"p": Pool(total=5, free=5)}, per_run={1: 1})
    choose(many(3), usage)
    assert usage == Usage(pools={"p": Pool(total=5, free=5)}, per_run={1: 1})


candidates = st.lists(
    st.builds(
        one,
        st.just(0),
        run=st.integers(1, 3),
        task=st.sampled_from("ab"),
        pool=st.sampled_from(["p", "q", "endless", "gone"]),
        slots=st.integers(1, 4),
    ),
    max_size=20,
).map(
    lambda rows: [
        one(pk, run=row.run_pk, task=row.task_id, pool=row.pool, slots=row.pool_slots) for pk, row in enumerate(rows)
    ]
)
usages = st.builds(
    lambda p, q, parallelism, per_run, per_task, in_run: Usage(
        pools={"p": Pool(total=4, free=p), "q": Pool(total=3, free=q), "endless": Pool(total=None)},
        limits=Limits(
            parallelism=parallelism,
            per_run={1: per_run},
            per_task={("d", "a"): per_task},
            per_task_in_run={("d", "b"): in_run},
        ),
    ),
    st.integers(0, 4),
    st.integers(0, 3),
    st.none() | st.integers(0, 10),
    st.integers(0, 4),
    st.integers(0, 4),
    st.integers(0, 4),
)


@given(candidates, usages)
def test_no_limit_is_ever_exceeded(rows: list[Candidate], usage: Usage) -> None:
    choice = choose(rows, usage)
    taken = [row for row in rows if row.pk in choice.chosen]
    limits = usage.limits
    for name, pool in usage.pools.items():
        assert pool.total is None or sum(row.pool_slots for row in taken if row.pool == name) <= pool.free
    assert limits.parallelism is None or len(taken) <= limits.parallelism
    assert sum(row.run_pk == 1 for row in taken) <= limits.per_run[1]
    assert sum(row.task_id == "a" for row in taken) <= limits.per_task["d", "a"]
    for run in (1, 2, 3):
        assert sum((row.run_pk, row.task_id) == (run, "b") for row in taken) <= limits.per_task_in_run["d", "b"]


@given(candidates, usages)
def test_everybody_is_either_chosen_or_told_what_it_waits_for(rows: list[Candidate], usage: Usage) -> None:
    choice = choose(rows, usage)
    assert sorted([*choice.chosen, *choice.blocked]) == [row.pk for row in rows]
    assert all(reason.endswith(".") for reason in choice.blocked.values())


@given(candidates, usages)
def test_a_candidate_is_blocked_only_by_something_that_is_taken(rows: list[Candidate], usage: Usage) -> None:
    choice = choose(rows, usage)
    roomy = Usage(pools=dict.fromkeys(["p", "q", "endless", "gone"], Pool(total=None)))
    assert choose(rows, roomy).blocked == {}
    assert choice.full == any("parallelism" in reason for reason in choice.blocked.values())
    for row in rows:
        if (
            row.pk in choice.blocked
            and "pool" in choice.blocked[row.pk]
            and row.pool in ("p", "q")
            and row.pool_slots <= 3
        ):
            assert row.pool in choice.exhausted_pools
