"""From raw records to judged ones: decoded, checked against every rule, masked. All of it native Spark."""

from __future__ import annotations

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from headrace.contracts.model import Contract
from headrace.gate.json_decoder import JsonDecoder
from headrace.gate.mask import is_masked, masked_event, masked_key, masked_reject
from headrace.gate.reasons import Rule, broken_reasons, let
from headrace.gate.rules import contract_rules, timestamp_of

# What a raw record looks like, from Kafka or from a file. Without a log time, checks against it do not apply.
RAW_COLUMNS = ("partition", "offset", "log_time", "key", "value", "headers")


def judge(records: DataFrame, contract: Contract, salt: str) -> DataFrame:
    """Adds `reasons` (null where the record is sound), `event_id` and `event_time` (microseconds).

    `key` and `value` are what may leave the gate: the original bytes, or the masked ones.
    """
    decoder = JsonDecoder(contract)
    value, event = F.col("value"), F.col("event")
    rules = [*contract_rules(contract, event), _future_rule(contract, event)]
    broken = reduce(lambda a, b: a | b, (rule.broken for rule in rules))
    decoded = records.withColumn("event", decoder.parse(value))
    # One cheap flag for every record, reasons only for those that have one: the flag is used twice below,
    # which keeps Spark from folding the two steps into one.
    flagged = decoded.select(
        "*",
        timestamp_of(event[contract.event_time]).alias("event_at"),
        (decoder.doubt(value, event) | broken).alias("suspect"),
    )
    judged = flagged.select(
        "*",
        F.when(F.col("suspect"), _explain(decoder, rules)).alias("reasons"),
        F.col("suspect").alias("explained"),
    )
    sound = ~F.col("explained") | F.col("reasons").isNull()
    return judged.select(
        "partition",
        "offset",
        "log_time",
        "headers",
        _leaving_key(contract, event, salt).alias("key"),
        _leaving_value(contract, event, sound, salt).alias("value"),
        "reasons",
        F.when(sound, event[contract.event_id]).alias("event_id"),
        F.when(sound, F.unix_micros("event_at")).alias("event_time"),
    )


def _future_rule(contract: Contract, event: Column) -> Rule:
    limit = F.col("log_time") + F.lit(contract.max_future_skew)
    ahead = F.coalesce(timestamp_of(event[contract.event_time]) > limit, F.lit(False))
    return Rule("future", contract.event_time, ahead)


def _explain(decoder: JsonDecoder, rules: list[Rule]) -> Column:
    """Format reasons first; a rule about a field that the format already rejects would only repeat them."""

    def with_rules(found: Column) -> Column:
        def is_news(rule: Column) -> Column:
            return ~F.exists(found, lambda f: rule["field"].startswith(f["field"]))

        return F.array_distinct(F.concat(found, F.filter(broken_reasons(rules), is_news)))

    reasons = let(decoder.diagnose(F.col("value"), F.col("event")), with_rules)
    return let(reasons, lambda found: F.when(F.size(found) > 0, found))


def _leaving_key(contract: Contract, event: Column, salt: str) -> Column:
    return masked_key(contract, F.col("key"), event, salt)


def _leaving_value(contract: Contract, event: Column, sound: Column, salt: str) -> Column:
    if not is_masked(contract):
        return F.col("value")
    return F.when(sound, masked_event(contract, event, salt)).otherwise(
        masked_reject(contract, F.col("value"))
    )
