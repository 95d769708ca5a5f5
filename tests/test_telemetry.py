"""Counters and spans reach whoever listens, and cost nothing where nobody does."""

from stannel import telemetry


def test_a_count_is_told_to_those_who_listen_and_to_nobody_afterwards() -> None:
    told: list[tuple[str, dict[str, str]]] = []
    with telemetry.listening(lambda name, tags: told.append((name, dict(tags)))):
        telemetry.count("jobs", {"operator": "A"})
    telemetry.count("jobs", {"operator": "B"})
    assert told == [("jobs", {"operator": "A"})]


def test_a_span_takes_attributes_where_nobody_looks() -> None:
    with telemetry.span("decision", {"operator": "A"}) as span:
        span.set_attribute("decision", "fresh_submit")
