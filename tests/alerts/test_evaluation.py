"""When an alert opens, goes on, is resolved and is taken back, window by window."""

from __future__ import annotations

from datetime import timedelta

import pytest

from headrace import sum_of, tumbling
from headrace.errors import AppError
from headrace.views.batch import METRICS
from tests.alerts.history import Cell, History, at

ID_LENGTH = 32


@pytest.fixture
def history(store_url: str) -> History:
    return History(store_url, tumbling("1 minute"), preliminary_after="10 seconds", final_after="2 minutes")


def bad(minute: int, region: str = "tashkent", events: int = 10) -> Cell:
    return Cell(at(minute), region, events, events)


def good(minute: int, region: str = "tashkent", events: int = 10) -> Cell:
    return Cell(at(minute), region, events, 0)


def settle(minute: int) -> int:
    """The clock at which the window that ends at the minute is preliminary."""
    return at(minute + 0.2)


def test_decimals_are_text_and_a_message_formats_them_as_numbers(store_url: str) -> None:
    history = History(store_url, tumbling("1 minute"), sums={"lost": sum_of("price")})
    history.alert(message="{lost} is {lost:,.1f}, {bad:d} of {n}")
    history.start()
    history.feed([bad(0, events=2000)], settle(1))
    [alert], [event] = history.alerts(), history.events()
    assert alert["values"] == {"events": 2000, "n": 2000, "bad": 2000, "lost": "2000.50", "rate": 1}
    assert event["values"] == alert["values"]
    assert alert["message"] == event["message"] == "2000.50 is 2,000.5, 2000 of 2000"
    history.feed([good(1)], settle(2))
    assert [e["values"]["lost"] for e in history.events()] == ["2000.50"] * 2


def test_three_windows_in_a_row_open_it_and_the_first_good_one_resolves_it(history: History) -> None:
    history.alert(windows=3, severity="critical", runbook="/runbooks/x", message="{region}: {rate:.0%} bad")
    history.start()
    history.feed([bad(0), bad(1)], settle(2))
    assert history.alerts() == []
    history.feed([bad(2)], settle(3))
    [alert] = history.alerts()
    assert (alert["state"], alert["windows"], alert["message"]) == ("open", 3, "tashkent: 100% bad")
    assert (alert["severity"], alert["runbook"], alert["resolved_at"]) == ("critical", "/runbooks/x", None)
    assert alert["dimensions"] == {"region": "tashkent"} and alert["grouping"] == "region"
    assert alert["values"] == {"events": 10, "n": 10, "bad": 10, "rate": 1}
    assert len(alert["id"]) == ID_LENGTH
    history.feed([bad(3)], settle(4))
    history.feed([good(4)], settle(5))
    assert history.told() == [
        ("opened", "tashkent", 0, 3),
        ("updated", "tashkent", 0, 4),
        ("resolved", "tashkent", 0, 4),
    ]
    [resolved] = history.alerts()
    assert (resolved["id"], resolved["state"], resolved["resolution"]) == (
        alert["id"],
        "resolved",
        "recovered",
    )
    assert resolved["opened_at"] == alert["opened_at"] < resolved["resolved_at"]
    assert {event["id"] for event in history.events()} == {alert["id"]}
    assert [event["event_id"] for event in history.events()] == [f"{alert['id']}-{n}" for n in (1, 2, 3)]


def test_an_open_window_does_not_count(history: History) -> None:
    history.alert()
    history.start()
    history.feed([bad(0)], at(1) + 9_999_999)
    assert history.alerts() == []
    history.feed([], at(1) + 10_000_000)
    assert history.told() == [("opened", "tashkent", 0, 1)]


def test_a_window_without_events_resolves_it(history: History) -> None:
    history.alert()
    history.start()
    history.feed([bad(0)], settle(1))
    history.feed([bad(1, "almaty")], settle(2))
    assert history.told() == [
        ("opened", "tashkent", 0, 1),
        ("resolved", "tashkent", 0, 1),
        ("opened", "almaty", 1, 2),
    ]


def test_silence_resolves_it_too(history: History) -> None:
    history.alert()
    history.start()
    history.feed([bad(0)], settle(1))
    [row] = history.rows(
        "SELECT active_at FROM headrace.watermarks WHERE query = %(query)s AND time = 'event'",
        query=history.query,
    )
    idle = timedelta(minutes=5)  # of the contract
    assert not history.accounts.tick(row["active_at"] + idle)
    assert history.accounts.tick(row["active_at"] + idle + timedelta(minutes=1))
    assert [kind for kind, *_ in history.told()] == ["opened", "resolved"]


def test_windows_that_settle_together_are_told_one_by_one(history: History) -> None:
    history.alert(windows=2)
    history.start()
    history.feed([*[bad(n) for n in range(4)], good(4), bad(5)], settle(6))
    assert history.told() == [
        ("opened", "tashkent", 0, 2),
        ("updated", "tashkent", 0, 3),
        ("updated", "tashkent", 0, 4),
        ("resolved", "tashkent", 0, 4),
    ]


def test_a_correction_ends_an_alert_in_the_middle_and_another_begins(history: History) -> None:
    history.alert()
    history.start()
    history.feed([bad(0), bad(1), bad(2)], settle(3))
    history.feed([good(1, events=30)], settle(3))
    first, second = history.alerts()
    assert (first["state"], first["windows"]) == ("resolved", 1)
    assert (second["state"], second["windows"]) == ("open", 1)
    assert history.told()[-2:] == [("resolved", "tashkent", 0, 1), ("opened", "tashkent", 2, 3)]


def test_a_correction_joins_two_alerts_again(history: History) -> None:
    history.alert()
    history.start()
    history.feed([bad(0), good(1), bad(2)], settle(3))
    before = history.alerts()
    history.feed([bad(1, events=30)], settle(3))
    after = history.alerts()
    assert [row["id"] for row in after] == [row["id"] for row in before]
    assert [(row["state"], row["resolution"]) for row in after] == [("open", ""), ("resolved", "retracted")]
    assert history.told()[-3:] == [
        ("opened", "tashkent", 0, 2),
        ("updated", "tashkent", 0, 3),
        ("resolved", "tashkent", 2, 3),
    ]
    assert history.events()[-1]["resolution"] == "retracted"


def test_a_correction_takes_an_alert_back_and_brings_it_again(history: History) -> None:
    history.alert()
    history.start()
    history.feed([bad(0)], settle(1))
    history.feed([good(0, events=20)], settle(1))
    [alert] = history.alerts()
    assert (alert["state"], alert["resolution"]) == ("resolved", "retracted")
    history.feed([bad(0, events=100)], settle(1))
    [again] = history.alerts()
    assert (again["id"], again["state"], again["resolution"], again["seq"]) == (alert["id"], "open", "", 3)
    assert [event["kind"] for event in history.events()] == ["opened", "resolved", "opened"]


def test_a_corrected_value_is_in_the_table_but_is_no_event(history: History) -> None:
    history.alert()
    history.start()
    history.feed([bad(0)], settle(1))
    history.feed([bad(0, events=5)], settle(1))
    assert history.told() == [("opened", "tashkent", 0, 1)]
    [alert] = history.alerts()
    assert (alert["values"]["n"], alert["seq"], alert["state"]) == (15, 1, "open")


def test_only_final_windows(history: History) -> None:
    history.alert(state="final", windows=2)
    history.start()
    history.feed([bad(0), bad(1)], at(3.9))
    assert history.alerts() == []
    history.feed([], at(4))
    assert history.told() == [("opened", "tashkent", 0, 2)]


def test_a_total_has_no_group(history: History) -> None:
    history.alert(by=[])
    history.start()
    history.feed([bad(0, "almaty")], settle(1))
    [alert] = history.alerts()
    assert (alert["grouping"], alert["dimensions"]) == ("all", {})


def test_a_long_alert_keeps_its_id_after_its_first_rows_are_gone(store_url: str) -> None:
    history = History(store_url, tumbling("1 minute"), final_after="1 minute", retain="4 minutes")
    history.alert(windows=2)
    history.start()
    for minute in range(20):
        history.feed([bad(minute)], at(minute + 1))
    history.feed([good(20)], at(21))
    [row] = history.rows(f'SELECT min(window_start) AS oldest FROM "{history.name}".errors')
    assert (row["oldest"].timestamp() * 1_000_000 - at(0)) / 60e6 > 10
    [alert] = history.alerts()
    assert (alert["windows"], alert["state"], alert["seq"]) == (20, "resolved", 20)


def test_a_jump_of_the_watermark_resolves_and_does_not_retract(store_url: str) -> None:
    history = History(store_url, tumbling("1 minute"), final_after="1 minute", retain="4 minutes")
    history.alert()
    history.start()
    history.feed([bad(0)], at(1))
    history.feed([], at(1000))
    assert [(row["state"], row["resolution"]) for row in history.alerts()] == [("resolved", "recovered")]


def test_a_batch_that_runs_again_and_a_second_look_change_nothing(history: History) -> None:
    history.alert()
    history.start()
    history.feed([bad(0), bad(1)], settle(2))
    before = history.alerts(), history.events()
    history.feed([], settle(2))
    assert (history.alerts(), history.events()) == before

    def broken(connection: object) -> None:
        history.work(connection, [bad(2)], settle(3))
        raise RuntimeError("the process dies before the commit")

    with pytest.raises(RuntimeError):
        history.store.transact(broken)
    assert (history.alerts(), history.events()) == before
    history.feed([bad(2)], settle(3))
    assert history.told()[2:] == [("updated", "tashkent", 0, 3)]


def test_a_new_rule_looks_only_at_what_comes(history: History) -> None:
    history.start()
    history.feed([bad(0), bad(1), bad(2)], settle(3))
    history.alert(windows=2)
    history.start()
    history.feed([bad(3)], settle(4))
    assert history.alerts() == []
    history.feed([bad(4)], settle(5))
    assert history.told() == [("opened", "tashkent", 3, 5)]


@pytest.mark.parametrize("change", [{"when": "rate > 0.6"}, {"windows": 2}, None])
def test_a_rule_that_changes_or_goes_withdraws_its_open_alerts(
    history: History, change: dict[str, object] | None
) -> None:
    history.alert(severity="info")
    history.start()
    history.feed([bad(0)], settle(1))
    del history.app.alerts["failing"]
    if change:
        history.alert(**change)
    history.start()
    [alert] = history.alerts()
    assert (alert["state"], alert["resolution"], alert["seq"]) == ("resolved", "withdrawn", 2)
    last = history.events()[-1]
    assert (last["kind"], last["resolution"], last["seq"]) == ("resolved", "withdrawn", 2)
    history.feed([bad(1), bad(2), bad(3)], settle(4))
    assert [row["state"] for row in history.alerts()] == ["resolved", "open"][: 2 if change else 1]


def test_what_an_alert_says_may_change(history: History) -> None:
    history.alert(message="one")
    history.start()
    history.feed([bad(0)], settle(1))
    del history.app.alerts["failing"]
    history.alert(message="two", severity="critical")
    history.start()
    history.feed([bad(1)], settle(2))
    [alert] = history.alerts()
    assert (alert["message"], alert["severity"], alert["windows"]) == ("two", "critical", 2)


def test_a_condition_that_postgres_cannot_compute(history: History) -> None:
    history.alert(when="upper(n) = '1'")
    with pytest.raises(AppError, match="alert 'failing', when: Postgres cannot compute it") as caught:
        history.start()
    assert "history.py" in caught.value.where


def test_a_percent_sign_in_a_condition_is_no_placeholder(history: History) -> None:
    history.alert(when="region LIKE 'tash%' AND n > 0")
    history.start()
    history.feed([bad(0), bad(0, "almaty")], settle(1))
    assert history.told() == [("opened", "tashkent", 0, 1)]


def test_old_alerts_and_events_go_and_open_ones_stay(history: History) -> None:
    history.alert(windows=1)
    history.start(keep=timedelta())
    history.feed([bad(0), bad(1, "almaty"), bad(2, "almaty")], settle(3))
    history.feed([bad(n, "almaty") for n in range(3, 9)], settle(9))
    history.store.transact(history.accounts.folds[METRICS].forget_old)
    assert [row["dimensions"]["region"] for row in history.alerts()] == ["almaty"]
    assert history.events() == []


def test_an_event_stays_until_it_is_published_and_delivered(history: History) -> None:
    history.alert(topic="some.topic", webhook="oncall")
    history.start(keep=timedelta())
    history.feed([bad(0)], settle(1))

    def left_after(change: str) -> int:
        history.store.transact(lambda connection: connection.execute(change.encode(), (history.query,)))
        history.store.transact(history.accounts.folds[METRICS].forget_old)
        return len(history.events())

    assert left_after("UPDATE headrace.alert_lanes SET published = 0 WHERE query = %s") == 1
    delivered = "UPDATE headrace.alert_events SET delivery = 'delivered' WHERE query = %s"
    assert left_after(delivered) == 1
    published = "UPDATE headrace.alert_lanes SET published = 1000000 WHERE query = %s"
    assert left_after(published) == 0
