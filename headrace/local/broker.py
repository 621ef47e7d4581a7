"""The embedded Kafka broker: one KRaft node on the loopback interface."""

from __future__ import annotations

import base64
import shutil
import socket
import subprocess
import uuid
from pathlib import Path

from headrace.errors import ServiceError
from headrace.local.jars import broker_classpath
from headrace.local.java import find_java
from headrace.local.service import Service, choose_port

HEAP = "768m"
SERVER = """\
process.roles=broker,controller
node.id=1
controller.quorum.voters=1@127.0.0.1:{controller_port}
listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:{controller_port}
advertised.listeners=PLAINTEXT://127.0.0.1:{port}
controller.listener.names=CONTROLLER
inter.broker.listener.name=PLAINTEXT
log.dirs={data}/logs
auto.create.topics.enable=false
num.partitions=4
message.max.bytes=2097152
offsets.topic.num.partitions=4
offsets.topic.replication.factor=1
offsets.retention.minutes=2147483647
transaction.state.log.num.partitions=4
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
share.coordinator.state.topic.num.partitions=4
share.coordinator.state.topic.replication.factor=1
share.coordinator.state.topic.min.isr=1
group.initial.rebalance.delay.ms=0
# After kill -9 the node waits for its own former session to expire before it is admitted again.
broker.session.timeout.ms=3000
broker.heartbeat.interval.ms=500
# A topic says itself how long it keeps its records; without a word nothing is deleted.
log.retention.ms=-1
"""
LOGGING = """\
<Configuration status="WARN">
  <Appenders>
    <RollingFile name="file" fileName="{log}" filePattern="{log}.%i">
      <PatternLayout pattern="%d{{ISO8601}} %-5p %c{{1}}: %m%n"/>
      <Policies><SizeBasedTriggeringPolicy size="20 MB"/></Policies>
      <DefaultRolloverStrategy max="2"/>
    </RollingFile>
  </Appenders>
  <Loggers>
    <Root level="INFO"><AppenderRef ref="file"/></Root>
    <Logger name="org.apache.kafka.common.config" level="WARN"/>
    <Logger name="kafka.server.KafkaConfig" level="WARN"/>
  </Loggers>
</Configuration>
"""


class Broker(Service):
    """Kafka under `<state>/kafka`; data is kept between runs, also after kill -9."""

    name = "kafka"

    def prepare(self) -> list[str]:
        logs = self.data / "logs"
        logs.mkdir(parents=True, exist_ok=True)
        controller_port = choose_port("kafka controller", 0, 0)
        config = self.data / "server.properties"
        config.write_text(
            SERVER.format(port=self.port, controller_port=controller_port, data=_escaped(self.data))
        )
        (self.data / "log4j2.xml").write_text(LOGGING.format(log=self.log))
        if not (logs / "meta.properties").exists():
            self._format(logs, config)
        return [*self._java(f"-Xmx{HEAP}", "-Xms256m"), "kafka.Kafka", str(config)]

    def is_healthy(self) -> bool:
        if not _listens(self.port):
            return False
        from confluent_kafka import KafkaException
        from confluent_kafka.admin import AdminClient

        admin = AdminClient({"bootstrap.servers": self.address, "log_level": "0"})
        try:
            return bool(admin.list_topics(timeout=5).brokers)
        except KafkaException:
            return False

    def _format(self, logs: Path, config: Path) -> None:
        # An interrupted format leaves files without meta.properties, on which the next one would stumble.
        shutil.rmtree(logs)
        logs.mkdir()
        cluster = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=").replace("-", "A", 1)
        command = [*self._java("-XX:TieredStopAtLevel=1"), "kafka.tools.StorageTool", "format"]
        done = subprocess.run(
            [*command, "--cluster-id", cluster, "--config", str(config)],
            capture_output=True,
            text=True,
        )
        if done.returncode:
            raise ServiceError(
                f"the Kafka storage could not be formatted: {(done.stderr or done.stdout).strip()}",
                where=str(self.data),
            )

    def _java(self, *options: str) -> list[str]:
        return [
            str(find_java().program),
            *options,
            *("-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Djava.awt.headless=true", "-Xshare:auto"),
            f"-Dlog4j2.configurationFile={self.data / 'log4j2.xml'}",
            *("-cp", broker_classpath()),
        ]


def _escaped(path: Path) -> str:
    # Java's properties files read a backslash as an escape.
    return str(path).replace("\\", "\\\\")


def _listens(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1)
        return probe.connect_ex(("127.0.0.1", port)) == 0
