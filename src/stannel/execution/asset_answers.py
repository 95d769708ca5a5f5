"""Answers what running tasks ask about assets: what they are, and which events they had."""

from collections.abc import Iterable
from typing import Any

from stannel.model.asset import AnyOfAlias, AssetAt, AssetNamed, ConsumedEvent, Reference, ThisAsset
from stannel.model.run import Attempt, Run
from stannel.protocol import replies, requests
from stannel.protocol.data import (
    AssetAliasReferenceAssetEventDagRun,
    AssetEventDagRunReference,
    AssetEventResponse,
    AssetProfile,
    AssetReferenceAssetEventDagRun,
    AssetResponse,
    DagRunAssetReference,
)
from stannel.protocol.refusal import Refused
from stannel.protocol.schema import ErrorCode
from stannel.store import Store
from stannel.store.assets import StoredAsset
from stannel.store.events import StoredEvent, Which

EventQuestion = requests.GetAssetEventByAsset | requests.GetAssetEventByAssetAlias
AssetRequest = (
    requests.GetAssetByName
    | requests.GetAssetByUri
    | requests.GetAssetsByAlias
    | requests.GetAssetEventByAsset
    | requests.GetAssetEventByAssetAlias
    | requests.ValidateInletsAndOutlets
)


def answer_about_assets(store: Store, attempt: Attempt, request: AssetRequest) -> replies.Reply:
    """The reply to a question about assets; an asset nobody knows is refused in the body."""
    match request:
        case requests.GetAssetByName(name):
            return _asset(store, AssetNamed(name), {"name": name})
        case requests.GetAssetByUri(uri):
            return _asset(store, AssetAt(uri), {"uri": uri})
        case requests.GetAssetsByAlias(alias):
            return replies.AssetsByAliasResult([_result(one) for one in store.assets.of_alias(alias)])
        case requests.GetAssetEventByAsset() | requests.GetAssetEventByAssetAlias():
            return _events(store, request)
        case requests.ValidateInletsAndOutlets():
            return replies.InactiveAssetsResult(_inactive(store, attempt))


def consumed(events: Iterable[ConsumedEvent]) -> list[AssetEventDagRunReference]:
    """The events of a run in the words of the wire."""
    return [
        AssetEventDagRunReference(
            asset=AssetReferenceAssetEventDagRun(name=one.name, uri=one.uri, extra=one.asset_extra),
            extra=one.extra,
            source_task_id=one.task_id,
            source_dag_id=one.dag_id,
            source_run_id=one.run_id,
            source_map_index=one.map_index,
            source_aliases=[AssetAliasReferenceAssetEventDagRun(name=alias) for alias in one.aliases],
            timestamp=one.timestamp,
            partition_key=one.partition_key,
        )
        for one in events
    ]


def _asset(store: Store, wanted: AssetNamed | AssetAt, about: dict[str, Any]) -> replies.AssetResult:
    found = store.assets.find(wanted)
    if found is None:
        raise Refused(ErrorCode.ASSET_NOT_FOUND, about, in_body=True)
    return _result(found)


def _result(found: StoredAsset) -> replies.AssetResult:
    return replies.AssetResult(name=found.name, uri=found.uri, group=found.group, extra=found.extra)


def _events(store: Store, question: EventQuestion) -> replies.AssetEventsResult:
    if question.partition_key_regexp_pattern is not None:
        # It may take for ever, and this thread answers everybody.
        raise _refused(501, "partition_key_regexp_pattern is not offered here; match the keys where you read them.")
    which = Which(
        of=_meant(question),
        alias=question.alias_name if isinstance(question, requests.GetAssetEventByAssetAlias) else None,
        after=question.after,
        before=question.before,
        partition_key=question.partition_key,
        ascending=question.ascending,
        # What the database cannot decide is decided here, so the limit can only count what is left.
        limit=None if question.extra else question.limit,
    )
    found = [one for one in store.events.find(which) if _fits(question.extra or {}, one)][: question.limit]
    runs = store.events.runs_of(one.pk for one in found)
    return replies.AssetEventsResult([_event(store, one, runs.get(one.pk, [])) for one in found])


def _refused(status: int, message: str) -> Refused:
    return Refused(ErrorCode.API_SERVER_ERROR, {"status_code": status, "message": message, "detail": None})


def _meant(question: EventQuestion) -> ThisAsset | AssetNamed | AssetAt | None:
    match question:
        case requests.GetAssetEventByAsset(name=str(name), uri=str(uri)):
            return ThisAsset(name, uri)
        case requests.GetAssetEventByAsset(name=str(name)):
            return AssetNamed(name)
        case requests.GetAssetEventByAsset(uri=str(uri)):
            return AssetAt(uri)
        case requests.GetAssetEventByAsset():
            raise _refused(400, "GetAssetEventByAsset needs the name or the uri of an asset.")
        case _:
            return None


def _fits(extra: dict[str, str], event: StoredEvent) -> bool:
    return all(name in event.extra and str(event.extra[name]) == value for name, value in extra.items())


def _event(store: Store, event: StoredEvent, runs: list[tuple[str, str]]) -> AssetEventResponse:
    return AssetEventResponse(
        id=event.pk,
        timestamp=event.happened_at,
        extra=event.extra,
        asset=AssetResponse(name=event.name, uri=event.uri, group=event.group, extra=event.asset_extra),
        created_dagruns=[_run(store.runs.get(dag_id, run_id)) for dag_id, run_id in runs],
        source_task_id=event.task_id,
        source_dag_id=event.dag_id,
        source_run_id=event.run_id,
        source_map_index=event.map_index,
        partition_key=event.partition_key,
    )


def _run(run: Run) -> DagRunAssetReference:
    return DagRunAssetReference(
        run_id=run.run_id,
        dag_id=run.dag_id,
        logical_date=run.logical_date,
        start_date=run.start_date,
        end_date=run.end_date,
        state=str(run.state),
        data_interval_start=run.data_interval_start,
        data_interval_end=run.data_interval_end,
        partition_key=run.partition_key,
    )


def _inactive(store: Store, attempt: Attempt) -> list[AssetProfile]:
    task = store.dags.spec(attempt.run.version).task(attempt.task_id)
    if task is None:
        return []
    return [profile_of(one) for one in store.assets.inactive_among((*task.inlets, *task.outlets))]


def profile_of(wanted: Reference) -> AssetProfile:
    """A reference in the words of the wire."""
    match wanted:
        case ThisAsset(name, uri):
            return AssetProfile(name=name, uri=uri, type="Asset")
        case AssetNamed(name):
            return AssetProfile(name=name, type="AssetNameRef")
        case AssetAt(uri):
            return AssetProfile(uri=uri, type="AssetUriRef")
        case AnyOfAlias(name):
            return AssetProfile(name=name, type="AssetAlias")
