"""What is noticed about a producer between two transactions."""

from __future__ import annotations

import time

import confluent_kafka as kafka

from headrace.local.services import Services
from headrace.log.markers import Contact


def producer_of(bootstrap: str, contact: Contact) -> kafka.Producer:
    options = {"bootstrap.servers": bootstrap, "log_level": "0", "error_cb": contact.note}
    return kafka.Producer(options)


def test_a_producer_without_a_broker_is_lost() -> None:
    contact = Contact()
    producer = producer_of("127.0.0.1:1", contact)
    until = time.monotonic() + 20
    while not contact.is_lost(producer):
        assert time.monotonic() < until, "it did not notice"
        time.sleep(0.01)
    contact.begin(producer)
    assert not contact.is_lost(producer)


def test_one_broker_of_two_is_enough(services: Services) -> None:
    contact = Contact()
    producer = producer_of(f"127.0.0.1:1,{services.bootstrap}", contact)
    assert producer.list_topics(timeout=20).brokers
    assert not contact.is_lost(producer)
