"""The lab without an engine: the sample, the CSV and its comparison, the trade-off, the commands."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from importlib.resources import files
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner, Result

from headrace.cli.lab import app
from headrace.cli.lab_show import bar, picture
from headrace.errors import UsageError
from headrace.ops.lab import HEADER, Difference, Row, TradeOff, compare_csv, csv_text, trade_off, write_csv
from tests.oracle import lab_oracle, lab_sample

SAMPLE = Path(str(files("headrace") / "templates" / "lab"))
LINES = (SAMPLE / "events.jsonl").read_text().splitlines()
NINE = datetime(2026, 1, 1, 9, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
NONE = timedelta(0)


def row(minute: int = 0, dimension: str = "all", **values: object) -> Row:
    start = NINE + minute * MINUTE
    counts: dict[str, object] = dict.fromkeys(
        ("impressions", "clicks", "purchases", "late_events_dropped", "total_events_seen"), 0
    )
    return Row(start, start + MINUTE, dimension, **(counts | {"max_event_lag": NONE} | values))  # type: ignore[arg-type]


def rows_of_oracle(
    file: Path, window_seconds: int, lateness_seconds: Sequence[int], by: Sequence[str]
) -> dict[int, list[Row]]:
    """The oracle in the place of the engine."""

    def rows(lateness: int) -> list[Row]:
        found = lab_oracle.tallies(file.read_text().splitlines(), window_seconds, lateness, by)
        return [
            Row(
                datetime.fromtimestamp(start, UTC),
                datetime.fromtimestamp(start + window_seconds, UTC),
                dimension,
                impressions=tally.impressions,
                clicks=tally.clicks,
                purchases=tally.purchases,
                late_events_dropped=tally.late,
                total_events_seen=tally.seen,
                max_event_lag=timedelta(microseconds=tally.lag or 0),
            )
            for (start, dimension), tally in found.items()
        ]

    return {lateness: rows(lateness) for lateness in lateness_seconds}


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("headrace.local.lab_windows")
    module.run_windows = rows_of_oracle  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)


def run(*words: object) -> Result:
    return CliRunner().invoke(app, [str(word) for word in words])


# The sample


def test_the_sample_is_what_its_generator_makes() -> None:
    made = lab_sample.files()
    assert {name: (SAMPLE / name).read_text() for name in made} == made
    assert {file.name for file in SAMPLE.iterdir()} == set(made)


@pytest.mark.parametrize("lateness", [0, 20, 120])
def test_the_expected_files_are_what_the_oracle_says(lateness: int) -> None:
    text = (SAMPLE / f"expected-{lateness}.csv").read_text()
    assert text == lab_oracle.expected_csv(LINES, 60, lateness, ["region"])
    assert text.splitlines()[0] == HEADER


@pytest.mark.parametrize("lateness", [0, 20, 120])
def test_rows_are_written_as_the_oracle_writes_them(lateness: int) -> None:
    rows = rows_of_oracle(SAMPLE / "events.jsonl", 60, [lateness], ["region"])[lateness]
    assert csv_text(rows[::-1]) == (SAMPLE / f"expected-{lateness}.csv").read_text()


def test_the_sample_has_what_makes_the_exercise_hard() -> None:
    events = [json.loads(line) for line in LINES]
    arrivals = [event["arrival_time"] for event in events]
    ids = [event["event_id"] for event in events]
    assert 380 <= len(events) <= 430
    assert arrivals != sorted(arrivals)
    assert len(set(arrivals)) < len(arrivals), "a tie"
    assert 10 <= len(ids) - len(set(ids)) <= 20
    for lateness, lost in ((0, 1), (20, 1), (120, 0)):
        totals = lab_oracle.tallies(LINES, 60, lateness).values()
        assert sum(tally.late == tally.seen for tally in totals) == lost
    assert "all,64,9,5,0.07812," in (SAMPLE / "expected-20.csv").read_text(), "a rate rounded to even"


def unique_ids(events: list[dict[str, str]]) -> None:
    for number, event in enumerate(events):
        event["event_id"] = str(number)


def last_arrival_counts(events: list[dict[str, str]]) -> None:
    last = {e["event_id"]: e for e in sorted(events, key=lambda e: e["arrival_time"])}
    events[:] = [event for event in events if last[event["event_id"]] is event]


def ties_backwards(events: list[dict[str, str]]) -> None:
    events.reverse()


def order_of_the_file(events: list[dict[str, str]]) -> None:
    for number, event in enumerate(events):
        event["arrival_time"] = f"2026-01-01T09:20:00.{number:06d}Z"


def copies_move_the_clock(events: list[dict[str, str]]) -> None:
    [copy] = [event for event in events if event["event_time"].endswith("09:08:59.900Z")]
    copy |= {"event_id": "another", "event_type": "search"}


@pytest.mark.parametrize(
    "mistake", [unique_ids, last_arrival_counts, ties_backwards, order_of_the_file, copies_move_the_clock]
)
def test_the_sample_tells_a_wrong_rule_from_the_right_one(
    mistake: Callable[[list[dict[str, str]]], None],
) -> None:
    events = [json.loads(line) for line in LINES]
    right = lab_oracle.tallies(LINES, 60, 20)
    mistake(events)
    wrong = lab_oracle.tallies([json.dumps(event) for event in events], 60, 20)
    numbers = [
        {key: (t.impressions, t.clicks, t.purchases) for key, t in found.items()} for found in (right, wrong)
    ]
    assert numbers[0] != numbers[1]


def test_the_oracle_on_a_table_made_by_hand() -> None:
    def event(name: str, kind: str, at: str, arrival: str) -> str:
        times = {"event_time": f"2026-01-01T09:{at}Z", "arrival_time": f"2026-01-01T09:{arrival}Z"}
        return json.dumps({"event_id": name, "event_type": kind, "user_id": "u", "city": "x,y"} | times)

    lines = [
        event("c", "purchase", "00:30", "01:41"),  # exactly 20 s behind: in time
        event("a", "product_impression", "00:10", "00:10.005"),
        event("b", "product_impression", "00:50", "00:51"),
        event("d", "purchase", "00:29.999999", "01:42"),  # late
        event("d", "purchase", "00:55", "01:43"),  # a copy of a late event
        event("e", "product_click", "01:00", "01:02.345"),  # the next window
        event("f", "purchase", "00:39", "01:02.345"),  # late after e, in the order of the file
    ]
    assert lab_oracle.expected_csv(lines, 60, 20, ["city", "none"]).splitlines()[1:] == [
        "2026-01-01T09:00:00+00:00,2026-01-01T09:01:00+00:00,all,2,0,0,0.00000,3,5,72.00",
        '2026-01-01T09:00:00+00:00,2026-01-01T09:01:00+00:00,"city=x,y",2,0,0,0.00000,3,5,72.00',
        "2026-01-01T09:01:00+00:00,2026-01-01T09:02:00+00:00,all,0,1,0,0.00000,0,1,2.34",
        '2026-01-01T09:01:00+00:00,2026-01-01T09:02:00+00:00,"city=x,y",0,1,0,0.00000,0,1,2.34',
    ]


# Rows and CSV


@pytest.mark.parametrize(
    ("purchases", "impressions", "rate"),
    [
        (0, 0, "0.00000"),
        (3, 0, "0.00000"),
        (1, 64, "0.01562"),  # 0.015625
        (3, 64, "0.04688"),  # 0.046875
        (1, 3, "0.33333"),
        (2, 3, "0.66667"),
        (3, 2, "1.50000"),
    ],
)
def test_the_rate_has_five_decimals_rounded_half_even(purchases: int, impressions: int, rate: str) -> None:
    assert row(purchases=purchases, impressions=impressions).cells()[6] == rate
    if impressions:
        assert lab_oracle.half_even(purchases, impressions, 5) == rate


@pytest.mark.parametrize(
    ("micros", "lag"),
    [
        (0, "0.00"),
        (12_345_000, "12.34"),
        (12_355_000, "12.36"),
        (12_345_001, "12.35"),
        (123_456_789_000, "123456.79"),
        (-4_000, "0.00"),
        (-12_345_000, "-12.34"),
        (-1_999, "0.00"),
        (-15_001, "-0.02"),
    ],
)
def test_the_lag_has_two_decimals_rounded_half_even(micros: int, lag: str) -> None:
    assert row(max_event_lag=timedelta(microseconds=micros)).cells()[9] == lag
    assert lab_oracle.half_even(micros, 1_000_000, 2) == lag


def test_a_row_needs_times_with_a_zone_and_writes_them_in_utc() -> None:
    tashkent = NINE.astimezone(timezone(timedelta(hours=5)))
    there = Row(tashkent, tashkent + MINUTE, "all", 0, 0, 0, 0, 0, NONE)
    assert there.cells()[:2] == ("2026-01-01T09:00:00+00:00", "2026-01-01T09:01:00+00:00")
    with pytest.raises(ValueError, match="zone"):
        Row(NINE.replace(tzinfo=None), NINE, "all", 0, 0, 0, 0, 0, NONE)


def test_rows_are_sorted_by_window_then_by_dimension_as_text(tmp_path: Path) -> None:
    names = ["region=b", "all", "age=3", "region=B", "region=a,b"]
    rows = [row(minute, name) for minute in (1, 0) for name in names]
    write_csv(rows, tmp_path / "out.csv")
    text = (tmp_path / "out.csv").read_bytes().decode()
    assert text.startswith(
        f"{HEADER}\n2026-01-01T09:00:00+00:00,2026-01-01T09:01:00+00:00,age=3,0,0,0,0.00000,"
    )
    assert "\r" not in text
    found = [cells[2] for cells in csv.reader(text.splitlines()[1:])]
    assert found == ["age=3", "all", "region=B", "region=a,b", "region=b"] * 2


def test_a_file_is_replaced_whole_and_a_link_stays_a_link(tmp_path: Path) -> None:
    (tmp_path / "real.csv").write_text("before")
    (tmp_path / "link.csv").symlink_to("real.csv")
    write_csv([row()], tmp_path / "link.csv")
    assert (tmp_path / "link.csv").is_symlink()
    assert (tmp_path / "real.csv").read_text() == csv_text([row()])
    assert sorted(file.name for file in tmp_path.iterdir()) == ["link.csv", "real.csv"]


def test_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    reader = os.open(pipe, os.O_RDONLY | os.O_NONBLOCK)
    try:
        write_csv([row()], pipe)
        assert os.read(reader, 10_000).decode() == csv_text([row()])
    finally:
        os.close(reader)
    assert pipe.is_fifo()


def test_what_cannot_be_written_is_one_error_and_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    for place in ("folder", "none/out.csv"):
        with pytest.raises(UsageError, match="cannot write"):
            write_csv([row()], tmp_path / place)
    assert [file.name for file in tmp_path.iterdir()] == ["folder"]


# The comparison

EXPECTED = SAMPLE / "expected-20.csv"
RIGHT = EXPECTED.read_text().splitlines()


def compared(tmp_path: Path, lines: list[str]) -> list[Difference]:
    file = tmp_path / "actual.csv"
    file.write_text("".join(f"{line}\n" for line in lines))
    return compare_csv(file, EXPECTED)


def test_equal_files_have_no_difference(tmp_path: Path) -> None:
    assert compared(tmp_path, RIGHT) == []


def test_a_changed_cell_is_named(tmp_path: Path) -> None:
    cells = RIGHT[1].split(",")
    changed = [HEADER, ",".join([*cells[:4], "99", *cells[5:]]), *RIGHT[2:]]
    [found] = compared(tmp_path, changed)
    assert found == Difference("cell", 2, cells[0], "all", "clicks", "99", cells[4])
    assert str(found) == f"line 2: window {cells[0]}, all: clicks is 99, expected {cells[4]}"


def test_the_comparison_is_of_text(tmp_path: Path) -> None:
    cells = RIGHT[1].split(",")
    [found] = compared(tmp_path, [HEADER, ",".join([*cells[:-1], f"{cells[-1]}0"]), *RIGHT[2:]])
    assert (found.column, found.actual) == ("max_event_lag_seconds", f"{cells[-1]}0")


def test_missing_and_extra_rows_are_named(tmp_path: Path) -> None:
    extra = RIGHT[2].replace("region=almaty", "region=oz")
    found = compared(tmp_path, [*RIGHT[:2], extra, *RIGHT[3:]])
    assert [(each.kind, each.line, each.dimension) for each in found] == [
        ("missing", 3, "region=almaty"),
        ("extra", 3, "region=oz"),
    ]
    assert str(found[0]).endswith("(line 3 of the expected file)")
    twice = compared(tmp_path, [*RIGHT, RIGHT[-1]])
    assert [(each.kind, each.line) for each in twice] == [("extra", len(RIGHT) + 1)]


def test_rows_in_another_order_are_a_difference(tmp_path: Path) -> None:
    [found] = compared(tmp_path, [RIGHT[0], RIGHT[2], RIGHT[1], *RIGHT[3:]])
    assert (found.kind, found.line, found.dimension) == ("order", 2, "region=almaty")
    assert "out of order, expected window 2026-01-01T09:00:00+00:00, all" in str(found)


def test_a_row_with_too_few_or_too_many_cells_is_a_difference(tmp_path: Path) -> None:
    [short] = compared(tmp_path, [HEADER, RIGHT[1].rpartition(",")[0], *RIGHT[2:]])
    assert (short.column, short.actual) == ("max_event_lag_seconds", "(no cell)")
    [long] = compared(tmp_path, [HEADER, f"{RIGHT[1]},7", *RIGHT[2:]])
    assert (long.column, long.actual, long.expected) == ("column 11", "7", "(no cell)")


@pytest.mark.parametrize("header", [HEADER.upper(), f"\ufeff{HEADER}", f"{HEADER},more", "window_start"])
def test_a_wrong_header_is_one_difference(tmp_path: Path, header: str) -> None:
    [found] = compared(tmp_path, [header, *RIGHT[5:]])
    assert (found.kind, found.line, found.actual, found.expected) == ("header", 1, header, HEADER)
    [both] = compare_csv(tmp_path / "actual.csv", tmp_path / "actual.csv")
    assert both == found
    assert str(found).isprintable()


def test_a_file_that_cannot_be_compared_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "empty.csv").touch()
    (tmp_path / "blank.csv").write_text("\n\n")
    (tmp_path / "latin.csv").write_bytes(b"\xe9\xff")
    (tmp_path / "open.csv").write_text(f'{HEADER}\n"never closed\n')
    (tmp_path / "folder").mkdir()
    for name, what in {
        "none.csv": "there is no such file",
        "empty.csv": "is empty",
        "blank.csv": "is empty",
        "latin.csv": "is not UTF-8 text",
        "open.csv": "is not CSV",
        "folder": "cannot be read: Is a directory",
    }.items():
        for actual, expected in ((tmp_path / name, EXPECTED), (EXPECTED, tmp_path / name)):
            with pytest.raises(UsageError, match=what) as caught:
                compare_csv(actual, expected)
            assert name in caught.value.where


# The trade-off


def test_the_trade_off_compares_with_the_largest_lateness() -> None:
    results = {
        60: [
            row(0, impressions=10, purchases=2, total_events_seen=20),
            row(1, impressions=8, purchases=1, total_events_seen=10, late_events_dropped=1),
            row(2, impressions=4, purchases=1, total_events_seen=10),
        ],
        0: [
            row(0, impressions=8, purchases=2, total_events_seen=20, late_events_dropped=5),
            row(0, "region=x", total_events_seen=20, late_events_dropped=5),
            row(1, impressions=8, purchases=1, total_events_seen=10, late_events_dropped=1),
            row(2, total_events_seen=10, late_events_dropped=10),
        ],
    }
    none, rate = Decimal("0.00000"), Decimal("0.25000")
    assert trade_off(results) == [
        # Errors: 0.25 - 0.2, nothing, and 0.25 where nothing is left.
        TradeOff(0, 40, 16, Decimal("0.60000"), 3, 0, 1, Decimal("0.10000"), rate),
        TradeOff(60, 40, 1, Decimal("0.97500"), 3, 2, 0, none, none),
    ]


def test_the_trade_off_of_nothing() -> None:
    assert trade_off({}) == []
    [found] = trade_off({5: []})
    assert (found.windows, found.dropped, found.kept, found.largest_rate_error) == (0, 0, 1, 0)


def test_bars_have_the_length_of_their_number() -> None:
    assert [bar(value, 96) for value in (0, 96, 48, 1, 0.001, 97 / 2)] == [
        "",
        "█" * 24,
        "█" * 12,
        "▎",
        "▏",
        "█" * 12 + "▏",
    ]
    lines = picture(trade_off(rows_of_oracle(SAMPLE / "events.jsonl", 60, [0, 20, 120], [])))
    assert [line.split()[0] for line in lines] == ["lateness", "0", "20", "120"]
    # The second bars begin under their title.
    assert {line[: lines[0].find("mean")][-2:] for line in lines} == {"  "}


# The commands


def test_check_ends_with_0_where_files_are_equal() -> None:
    done = run("check", "--actual", EXPECTED, "--expected", EXPECTED)
    assert (done.exit_code, done.stdout) == (0, "equal\n")


def test_check_ends_with_1_and_names_the_cell() -> None:
    done = run("check", "--actual", SAMPLE / "expected-0.csv", "--expected", SAMPLE / "expected-120.csv")
    assert done.exit_code == 1
    lines = done.stdout.splitlines()
    assert lines[0] == "line 2: window 2026-01-01T09:00:00+00:00, all: impressions is 9, expected 11"
    assert "differences, " in lines[-1] and "not shown" in lines[-1]


def test_check_as_json_has_every_difference(tmp_path: Path) -> None:
    (tmp_path / "short.csv").write_text("\n".join(RIGHT[:-1]))
    done = run("check", "--actual", tmp_path / "short.csv", "--expected", EXPECTED, "--json")
    found = json.loads(done.stdout)
    assert (done.exit_code, found["equal"]) == (1, False)
    assert [(each["kind"], each["line"]) for each in found["differences"]] == [("missing", len(RIGHT))]


def test_check_of_a_file_that_is_not_there_ends_with_2(tmp_path: Path) -> None:
    done = run("check", "--actual", tmp_path / "none.csv", "--expected", EXPECTED)
    assert isinstance(done.exception, UsageError)
    assert (done.exception.exit_code, done.stdout) == (2, "")


@pytest.mark.usefixtures("engine")
def test_windows_writes_the_expected_file(tmp_path: Path) -> None:
    given = ("windows", "--input", SAMPLE / "events.jsonl", "--window-seconds", 60, "--by", "region")
    for lateness in (0, 20, 120):
        output = tmp_path / f"{lateness}.csv"
        done = run(*given, "--allowed-lateness-seconds", lateness, "--output", output)
        assert done.exit_code == 0, done.exception
        expected = SAMPLE / f"expected-{lateness}.csv"
        assert run("check", "--actual", output, "--expected", expected).exit_code == 0
    assert done.stdout == f"{output}: 59 rows of 10 windows; 4 of 407 events were late\n"


@pytest.mark.usefixtures("engine")
def test_windows_prints_csv_into_a_pipe_and_takes_the_sample_without_an_input() -> None:
    done = run("windows", "--by", "region")
    assert (done.exit_code, done.stdout) == (0, EXPECTED.read_text())
    assert str(SAMPLE / "events.jsonl") in done.stderr
    first = json.loads(run("windows", "--by", "region", "--json").stdout)[0]
    assert ",".join(first) == HEADER
    assert (first["impressions"], first["conversion_rate"]) == (11, 0.27273)


@pytest.mark.usefixtures("engine")
def test_compare_shows_the_trade_off_and_draws_it() -> None:
    done = run("compare", "--input", SAMPLE / "events.jsonl", "--lateness", "120, 0,20")
    assert done.exit_code == 0, done.exception
    assert [line.split()[0] for line in done.stdout.splitlines() if " s " in line] == ["0", "20", "120"] * 2
    assert "█" * 24 in done.stdout
    found = json.loads(run("compare", "--json").stdout)
    dropped = [each["dropped"] for each in found]
    assert [each["lateness_seconds"] for each in found] == [0, 20, 120]
    assert dropped == sorted(dropped, reverse=True)
    assert found[-1]["largest_rate_error"] == 0


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(
    ("words", "what"),
    [
        ("windows --window-seconds 0", "--window-seconds must be from 1"),
        ("windows --window-seconds 99999999999", "--window-seconds must be from 1"),
        ("windows --allowed-lateness-seconds -1", "--allowed-lateness-seconds must be from 0"),
        ("windows --by region=x", "--by 'region=x' is not the name of a field"),
        ("windows --by region --by region", "--by names 'region' twice"),
        ("windows --input none.jsonl", "--input none.jsonl: there is no such file"),
        ("windows --input .", "--input . is a folder"),
        ("windows --input in.jsonl --output ./in.jsonl", "--output is the same file as --input"),
        ("windows --input in.jsonl --output none/out.csv", "there is no folder none"),
        ("windows --input in.jsonl --output .", "--output . is a folder"),
        ("compare --window-seconds -60", "--window-seconds must be from 1"),
        ("compare --lateness 0,,20", "--lateness '0,,20' is not a list of seconds"),
        ("compare --lateness 0,-20", "--lateness '0,-20' is not a list of seconds"),
        ("compare --input none.jsonl", "--input none.jsonl: there is no such file"),
    ],
)
def test_wrong_options_are_one_error(
    words: str, what: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "in.jsonl").touch()
    done = run(*words.split())
    assert isinstance(done.exception, UsageError), done.output
    assert what in str(done.exception)
    assert done.stdout == ""


@pytest.mark.parametrize("command", ["windows", "check", "compare"])
def test_every_command_has_help_with_an_example(command: str) -> None:
    done = run(command, "--help")
    assert done.exit_code == 0
    assert f"headrace lab {command}" in done.stdout


def test_the_real_gate_and_metric_write_what_is_expected() -> None:
    # In a process of its own: it starts a Spark session and ends it.
    program = (
        "import json, sys; from pathlib import Path; from headrace.local.lab_windows import run_windows;"
        "from headrace.ops.lab import csv_text;"
        "found = run_windows(Path(sys.argv[1]), 60, [0, 20, 120], ['region']);"
        "print(json.dumps({lateness: csv_text(rows) for lateness, rows in found.items()}))"
    )
    sample = SAMPLE / "events.jsonl"
    done = subprocess.run(
        [sys.executable, "-c", program, str(sample)], capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stderr[-2000:]
    for lateness, text in json.loads(done.stdout).items():
        assert text == (SAMPLE / f"expected-{lateness}.csv").read_text(), f"lateness {lateness}"
