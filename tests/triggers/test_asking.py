import asyncio

import pytest

from stannel.protocol.requests import GetConnection
from stannel.triggers.asking import EngineRefused, ask, look_until_seen, run_ended, use_asker


async def test_asking_where_no_triggerer_runs_is_a_clear_error():
    with pytest.raises(RuntimeError, match="GetConnection needs the engine"):
        await ask(GetConnection("x"))
    with pytest.raises(RuntimeError, match="needs the engine"):
        await run_ended(["d"], 1)


async def test_a_refusal_says_what_was_refused_and_why(engine):
    with pytest.raises(EngineRefused, match=r"GetConnection: CONNECTION_NOT_FOUND \(conn_id 'nowhere'\)") as caught:
        await ask(GetConnection("nowhere"))
    assert caught.value.is_not_found
    assert caught.value.error == "CONNECTION_NOT_FOUND"


@pytest.mark.parametrize(
    ("error", "detail", "not_found"),
    [
        ("API_SERVER_ERROR", {"status_code": 404}, True),
        ("API_SERVER_ERROR", {"status_code": 500}, False),
        ("VARIABLE_NOT_FOUND", {}, True),
    ],
)
def test_a_refusal_knows_whether_the_thing_is_missing(error, detail, not_found):
    assert EngineRefused("GetX", error, detail).is_not_found is not_found


def test_the_words_of_the_engine_are_kept():
    assert str(EngineRefused("GetX", "CODE", {"message": "The run is gone."})).endswith("GetX: The run is gone.")


async def test_what_answered_before_answers_again_afterwards(engine):
    with use_asker(None), pytest.raises(RuntimeError):
        await ask(GetConnection("x"))
    with pytest.raises(EngineRefused):
        await ask(GetConnection("x"))


def test_a_look_is_repeated_at_its_interval(engine, virtually):
    looks = iter([None, None, "seen"])

    async def look():
        return next(looks)

    assert virtually(look_until_seen(look, ["other"], 10.0)) == ("seen", 20.0)


def test_a_run_that_ends_is_looked_at_at_once(engine, virtually):
    async def look():
        return engine.runs.get("r")

    async def work():
        asyncio.get_running_loop().call_later(3, engine.end, "r", "success")
        return await look_until_seen(look, ["other"], 1000.0)

    assert virtually(work()) == ("success", 3.0)


def test_a_run_of_another_dag_is_no_news(engine, virtually):
    async def look():
        return engine.runs.get("r")

    async def work():
        asyncio.get_running_loop().call_later(3, engine.end, "r", "success", "unrelated")
        return await look_until_seen(look, ["other"], 1000.0)

    assert virtually(work()) == ("success", 1000.0)


def test_a_run_that_ends_while_we_look_is_not_missed(engine, virtually):
    async def look():
        seen = engine.runs.get("r")
        await asyncio.sleep(0)
        if seen is None:
            engine.end("r", "success")
        return seen

    assert virtually(look_until_seen(look, ["other"], 1000.0)) == ("success", 0.0)


def test_an_impatient_look_leaves_the_engine_some_air(engine, virtually):
    looks = iter([None, "seen"])

    async def look():
        return next(looks)

    _, took = virtually(look_until_seen(look, ["other"], 0.0))
    assert took > 0


@pytest.mark.parametrize("ends", ["seen", "raised", "cancelled"])
async def test_nothing_is_left_behind_when_a_look_is_over(engine, ends):
    async def look():
        await asyncio.sleep(0)
        if ends == "raised":
            raise ValueError("no")
        return "seen" if ends == "seen" else None

    task = asyncio.create_task(look_until_seen(look, ["other"], 1000.0))
    async with asyncio.timeout(10):
        while ends == "cancelled" and not engine.listeners:
            await asyncio.sleep(0)
        if ends == "cancelled":
            task.cancel()
        await asyncio.gather(task, return_exceptions=True)
    assert engine.listeners == 0
    assert asyncio.all_tasks() == {asyncio.current_task()}
