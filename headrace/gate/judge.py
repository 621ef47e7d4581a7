"""From raw records to judged ones: decoded, checked against every rule, masked. All of it native Spark."""

from __future__ import annotations

from datetime import timedelta

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.contracts.model import Contract
from headrace.gate.json_decoder import JsonDecoder
from headrace.gate.mask import is_masked, masked_event, masked_key, masked_reject
from headrace.gate.reasons import Rule, any_of, broken_reasons, broken_rules, let
from headrace.gate.rules import contract_rules, timestamp_of
from headrace.gate.typed import typed_fields

# What a raw record looks like, from Kafka or from a file. Without a log time, checks against it do not apply.
UNUSABLE = ("wrong_type", "bad_format")
RAW_COLUMNS = ("partition", "offset", "log_time", "key", "value", "headers")


def judge(
    records: DataFrame, contract: Contract, salt: str, carried: tuple[str, ...] = (), *, whole: bool = True
) -> DataFrame:
    """Adds `reasons` (null where the record is sound), `event_id` and `event_time` (microseconds).

    `key` and `value` are what may leave the gate: the original bytes, or the masked ones. Columns beyond
    those of a raw record pass through. `carried` names fields that are wanted later, as a struct `fields`.
    Unless the records are wanted `whole`, those that will hardly leave the gate have neither key nor value.
    """
    decoder = JsonDecoder(contract)
    value, event = F.col("value"), F.col("event")
    rules = [*contract_rules(contract, event), _future_rule(contract, event)]
    decoded = records.withColumn("event", decoder.parse(value))
    words = {f"broken_{n}": word for n, word in enumerate(broken_rules(rules))}
    checked = decoded.withColumns(words)
    broken = [F.col(name) for name in words]
    # One cheap flag for every record, reasons only for those that have one: the flag is used twice below,
    # which keeps Spark from folding the two steps into one.
    suspect = decoder.doubt(value, event) | any_of([word != 0 for word in broken])
    flagged = checked.select(
        *records.columns,
        event[contract.event_id].alias("event_id"),
        F.unix_micros(timestamp_of(event[contract.event_time])).alias("event_time"),
        suspect.alias("suspect"),
        *broken,
        *([typed_fields(contract, carried, event, salt).alias("fields")] if carried else []),
        # Copying an event from step to step costs; after this one only suspects and masks look into it.
        (event if is_masked(contract) else F.when(suspect, event)).alias("event"),
    )
    judged = flagged.select(
        "*",
        F.when(F.col("suspect"), _explain(decoder, rules, broken)).alias("reasons"),
        F.col("suspect").alias("explained"),
    )
    sound = ~F.col("explained") | F.col("reasons").isNull()
    leaving = {
        "headers": F.col("headers"),
        "key": _leaving_key(contract, event, salt),
        "value": _leaving_value(contract, event, sound, salt),
    }
    if not whole:
        may_leave = ~sound | _looks_late(contract)
        leaving = {name: F.when(may_leave, column) for name, column in leaving.items()}
    return judged.select(
        "partition",
        "offset",
        "log_time",
        *[column.alias(name) for name, column in leaving.items()],
        "reasons",
        F.when(sound, F.col("event_id")).alias("event_id"),
        F.when(sound, F.col("event_time")).alias("event_time"),
        *(["fields"] if carried else []),
        *[column for column in records.columns if column not in RAW_COLUMNS],
    )


def _looks_late(contract: Contract) -> Column:
    """By its own log time. Its partition's clock decides, and is hardly ever further than that."""
    behind = (contract.lateness - contract.max_future_skew) // timedelta(microseconds=1)
    return F.coalesce(F.col("event_time") < F.unix_micros("log_time") - behind, F.lit(True))


def _future_rule(contract: Contract, event: Column) -> Rule:
    limit = F.unix_micros("log_time") + contract.max_future_skew // timedelta(microseconds=1)
    ahead = F.unix_micros(timestamp_of(event[contract.event_time])) > limit
    return Rule("future", contract.event_time, F.coalesce(ahead, F.lit(False)))


def _explain(decoder: JsonDecoder, rules: list[Rule], broken: list[Column]) -> Column:
    """Format reasons first; a rule about a field that they already name would only repeat or mislead."""

    def with_rules(found: Column) -> Column:
        named = F.transform(found, lambda f: _top_level(f["field"]))
        whole = F.exists(named, lambda name: name == "")

        def is_news(rule: Column) -> Column:
            return ~whole & ~F.array_contains(named, _top_level(rule["field"]))

        news = F.filter(broken_reasons(broken, rules), is_news)
        return F.array_distinct(F.concat(found, let(news, _meaningful)))

    reasons = let(decoder.diagnose(F.col("value"), F.col("event")), with_rules)
    return let(reasons, lambda found: F.when(F.size(found) > 0, found))


def _top_level(path: Column) -> Column:
    return F.regexp_extract(path, r"^[^.\[{]*", 0)


def _meaningful(found: Column) -> Column:
    """Without limits of a value that is not even of its type or format."""
    unusable = F.filter(found, lambda r: r["code"].isin(*UNUSABLE))
    fields = F.transform(unusable, lambda r: r["field"])
    return F.filter(found, lambda r: r["code"].isin(*UNUSABLE) | ~F.array_contains(fields, r["field"]))


def _leaving_key(contract: Contract, event: Column, salt: str) -> Column:
    return masked_key(contract, F.col("key"), event, salt)


def _leaving_value(contract: Contract, event: Column, sound: Column, salt: str) -> Column:
    if not is_masked(contract):
        return F.col("value")
    return F.when(sound, masked_event(contract, event, salt)).otherwise(
        masked_reject(contract, F.col("value"))
    )
