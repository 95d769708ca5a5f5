"""Values that tasks leave for each other, as the running task reads and writes them."""

from collections.abc import Iterator, Sequence
from typing import Any, overload

from stannel.protocol.requests import (
    DeleteXCom,
    GetXCom,
    GetXComCount,
    GetXComSequenceItem,
    GetXComSequenceSlice,
    SetXCom,
)
from stannel.sdk import comms, serde
from stannel.sdk.exceptions import AirflowRuntimeError
from stannel.sdk.references import XCOM_RETURN_KEY

_PAGE = 100


class XCom:
    """Direct access by name; inside a task `ti.xcom_push` and `ti.xcom_pull` are shorter."""

    XCOM_RETURN_KEY = XCOM_RETURN_KEY

    @classmethod
    def get_one(
        cls,
        *,
        key: str,
        dag_id: str,
        task_id: str,
        run_id: str,
        map_index: int | None = None,
        include_prior_dates: bool = False,
    ) -> Any:
        """The value. None: nothing was left under that name."""
        answer = comms.ask(
            GetXCom(
                key=key,
                dag_id=dag_id,
                run_id=run_id,
                task_id=task_id,
                map_index=map_index,
                include_prior_dates=include_prior_dates,
            )
        )
        return serde.decode(answer.value)

    get_value = get_one

    @classmethod
    def set(
        cls,
        key: str,
        value: Any,
        *,
        dag_id: str,
        task_id: str,
        run_id: str,
        map_index: int = -1,
        what: str | None = None,
    ) -> None:
        """Leave a value; it replaces the one of an earlier attempt."""
        comms.ask(
            SetXCom(
                key=key,
                value=serde.encode(value, what or f"the XCom {key!r} of task {task_id!r}"),
                dag_id=dag_id,
                run_id=run_id,
                task_id=task_id,
                map_index=map_index,
                mapped_length=len(value) if isinstance(value, list | tuple | dict) else None,
            )
        )

    @classmethod
    def delete(cls, key: str, task_id: str, dag_id: str, run_id: str, map_index: int | None = None) -> None:
        """Remove a value; removing one that does not exist is fine."""
        comms.ask(DeleteXCom(key=key, dag_id=dag_id, run_id=run_id, task_id=task_id, map_index=map_index))


class LazyXComSequence(Sequence[Any]):
    """What the instances of a mapped task left, in the order of their map indexes; items are fetched when used."""

    is_xcom_sequence = True

    def __init__(self, *, key: str, dag_id: str, run_id: str, task_id: str) -> None:
        self._name: dict[str, Any] = {"key": key, "dag_id": dag_id, "run_id": run_id, "task_id": task_id}
        self._length: int | None = None

    def __len__(self) -> int:
        if self._length is None:
            self._length = int(comms.ask(GetXComCount(**self._name)).len)
        return self._length

    @overload
    def __getitem__(self, place: int) -> Any: ...
    @overload
    def __getitem__(self, place: slice) -> list[Any]: ...
    def __getitem__(self, place: int | slice) -> Any:
        if isinstance(place, slice):
            bounds: dict[str, Any] = {"start": place.start, "stop": place.stop, "step": place.step}
            answer = comms.ask(GetXComSequenceSlice(**self._name, **bounds))
            return [serde.decode(item) for item in answer.root]
        try:
            return serde.decode(comms.ask(GetXComSequenceItem(**self._name, offset=place)).root)
        except AirflowRuntimeError as error:
            if error.error == "XCOM_NOT_FOUND":
                raise IndexError(place) from None
            raise

    def __iter__(self) -> Iterator[Any]:
        start = 0
        while page := self[start : start + _PAGE]:
            yield from page
            start += len(page)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and not isinstance(other, str | bytes) and list(self) == list(other)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        return f"LazyXComSequence({self._name['task_id']!r}, {self._name['key']!r})"
