"""A small app with a harmless and a classified stream, on a real broker and a real store."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer

from headrace.connections import Connections
from headrace.log.topics import ensure_topics
from headrace.ops.load import LoadedApp, load_app

APP = """
from headrace import App, count, max_of, tumbling

app = App("desk", contracts="contracts")
minute = tumbling("1 minute")
app.metric("taps_1m", of="desk_taps", window=minute, by=[[], ["place"]], measures={"n": count()})
app.metric("cards_1m", of="desk_cards", window=minute, measures={"n": count()})
app.metric("largest", of="desk_cards", window=minute, measures={"most": max_of("amount")})
app.metric("by_owner", of="desk_cards", window=minute, by=["owner"], measures={"n": count()})
"""
TAPS = """
kind: DataContract
apiVersion: v3.2.0
id: desk_taps
version: 1.2.0
schema:
  - name: desk_taps
    properties:
      - {name: tap_id, logicalType: string, required: true, primaryKey: true, examples: [t-1]}
      - {name: at, logicalType: timestamp, required: true}
      - {name: place, logicalType: string, required: true, partitioned: true}
      - {name: producer, logicalType: string}
team: {name: plumbing}
customProperties:
  - {property: partitions, value: 2}
"""
CARDS = """
kind: DataContract
apiVersion: v3.2.0
id: desk_cards
version: 1.0.0
schema:
  - name: desk_cards
    properties:
      - {name: card_id, logicalType: string, required: true, primaryKey: true, examples: [card-example]}
      - {name: at, logicalType: timestamp, required: true}
      - {name: shop, logicalType: string, required: true, partitioned: true}
      - {name: amount, logicalType: integer, classification: confidential, examples: [4242]}
      - {name: owner, logicalType: string, classification: restricted}
      - {name: producer, logicalType: string}
      - name: address
        logicalType: object
        properties:
          - {name: city, logicalType: string}
          - {name: street, logicalType: string, classification: restricted}
team: {name: bank}
roles:
  - {role: auditor, access: read}
  - {role: till, access: write}
customProperties:
  - {property: partitions, value: 2}
"""


def desk_app(folder: Path) -> LoadedApp:
    (folder / "contracts").mkdir(parents=True, exist_ok=True)
    (folder / "app.py").write_text(APP)
    (folder / "contracts" / "taps.yaml").write_text(TAPS)
    (folder / "contracts" / "cards.yaml").write_text(CARDS)
    return load_app(folder)


@dataclass(frozen=True)
class Rejects:
    """Writes into invalid topics what the gate would."""

    connections: Connections
    loaded: LoadedApp

    def make_topics(self) -> None:
        for contract in self.loaded.contracts.values():
            ensure_topics(contract, self.connections.librdkafka)

    def send(self, stream: str, records: list[tuple[int, Any, str]]) -> None:
        """Partition, body (bytes as they are, anything else as JSON) and reason of each."""
        contract = self.loaded.contract(stream)
        producer = Producer(self.connections.librdkafka)
        for number, (partition, body, reason) in enumerate(records):
            headers = [
                ("x-trace", b"secret-header"),
                ("headrace-source", f"{contract.topics.raw}/{partition}/{number}/1767225600000".encode()),
                ("headrace-contract", f"{stream}:{contract.version}".encode()),
                ("headrace-reasons", json.dumps([{"code": reason, "field": "at"}]).encode()),
            ]
            value = body if isinstance(body, bytes) else json.dumps(body).encode()
            producer.produce(
                contract.topics.invalid,
                value,
                b"secret-key",
                partition,
                headers=headers,
                timestamp=1_767_225_600_000 + number * 1000,
            )
        assert producer.flush(20) == 0
