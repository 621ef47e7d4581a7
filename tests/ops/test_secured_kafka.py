"""A Kafka that asks for TLS and a password, reached with nothing but the settings of a working folder."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from pyspark.sql import SparkSession

from headrace import settings
from headrace.app import Source
from headrace.connections import Connections
from headrace.contracts import load_contract
from headrace.local.broker import Broker
from headrace.local.connect import found_connections
from headrace.local.services import Services
from headrace.log.produce import produce
from headrace.log.topics import ensure_topics
from headrace.ops.audit import audit_source
from headrace.ops.gate_query import GateQuery
from headrace.store.connection import Store
from headrace.testing.traffic import load_traffic

TURANMART = Path(__file__).parents[2] / "apps" / "turanmart"
EVENTS = 500
USER, PASSWORD = "shop", 'a "quoted" \\ secret'
SECURED = """\
listeners=SASL_SSL://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller}
advertised.listeners=SASL_SSL://127.0.0.1:{port}
inter.broker.listener.name=SASL_SSL
listener.security.protocol.map=SASL_SSL:SASL_SSL,CONTROLLER:PLAINTEXT
sasl.enabled.mechanisms=PLAIN
sasl.mechanism.inter.broker.protocol=PLAIN
listener.name.sasl_ssl.plain.sasl.jaas.config={jaas}
ssl.keystore.type=PEM
ssl.keystore.location={keys}
ssl.truststore.type=PEM
ssl.truststore.location={authority}
"""
pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes the certificate")


class SecuredBroker(Broker):
    """Takes records only over TLS and from a user it knows."""

    def prepare(self) -> list[str]:
        command = super().prepare()
        config = self.data / "server.properties"
        plain = dict(line.split("=", 1) for line in config.read_text().splitlines() if "=" in line)
        for name in ("listeners", "advertised.listeners", "inter.broker.listener.name"):
            plain.pop(name)
        own, given = (text.replace("\\", "\\\\").replace('"', '\\"') for text in ("broker", PASSWORD))
        jaas = (
            "org.apache.kafka.common.security.plain.PlainLoginModule required"
            f' username="{own}" password="{own}" user_{own}="{own}" user_{USER}="{given}";'
        )
        controller = plain["controller.quorum.voters"].rpartition(":")[2]
        secured = SECURED.format(
            port=self.port,
            controller=controller,
            jaas=jaas.replace("\\", "\\\\"),
            keys=make_keys(self.data),
            authority=self.data / "authority.pem",
        )
        config.write_text("\n".join(f"{n}={v}" for n, v in plain.items()) + "\n" + secured)
        return command

    def is_healthy(self) -> bool:
        admin = AdminClient({"bootstrap.servers": self.address, "log_level": "0", **secrets_of(self)})
        try:
            return bool(admin.list_topics(timeout=5).brokers)
        except KafkaException:
            return False


def make_keys(folder: Path) -> Path:
    """A certificate that is its own authority, and its key in one file with it."""
    key, certificate = folder / "key.pem", folder / "authority.pem"
    made = [
        "openssl",
        "req",
        "-x509",
        "-newkey",
        "rsa:2048",
        "-nodes",
        "-days",
        "1",
        "-subj",
        "/CN=localhost",
    ]
    made += ["-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)]
    subprocess.run(made, check=True, capture_output=True)
    both = folder / "keys.pem"
    both.write_text(key.read_text() + certificate.read_text())
    return both


def secrets_of(broker: Broker) -> dict[str, str]:
    return {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "PLAIN",
        "sasl.username": USER,
        "sasl.password": PASSWORD,
        "ssl.ca.location": str(broker.data / "authority.pem"),
    }


@pytest.fixture
def connections(tmp_path: Path, services: Services) -> Iterator[Connections]:
    broker = SecuredBroker(tmp_path / ".headrace", 0)
    broker.start()
    try:
        lines = [f"'{name}' = '''{value}'''" for name, value in secrets_of(broker).items()]
        (tmp_path / "headrace.toml").write_text(
            f'kafka_bootstrap = "{broker.address}"\nstore_url = "{services.store_url}"\n'
            "[kafka]\n" + "\n".join(lines) + "\n"
        )
        yield found_connections(settings.load(tmp_path, {}))
    finally:
        broker.stop()


def test_every_client_logs_in(spark: SparkSession, connections: Connections, tmp_path: Path) -> None:
    with pytest.raises(KafkaException):
        AdminClient({"bootstrap.servers": connections.bootstrap, "log_level": "0"}).list_topics(timeout=3)
    contract = replace(load_contract(TURANMART / "contracts" / "logins.yaml"), name="secured")
    ensure_topics(contract, connections.librdkafka)
    Store(connections.store_url).prepare()
    model = load_traffic(TURANMART)
    options = model.options(events=EVENTS, seed=4, streams={"logins": 1}, malformed=0.05)
    produce(model.records(options), connections.librdkafka, lambda _: contract.topics.raw, rate=None)
    gate = GateQuery(
        *(spark, "secured", contract, Source(contract.name), connections),
        checkpoints=str(tmp_path / "checkpoints"),
        slots=tmp_path / "slots",
        salt="salt",
    )
    assert gate.start(available_now=True).awaitTermination(120)
    report = audit_source("secured", contract, Source(contract.name), connections, recount=True)
    assert report.clean, report.findings
    assert report.fates.received == EVENTS and report.fates.accepted > EVENTS * 0.8
