"""The embedded broker and database as real processes: data, crashes and refusals."""

from __future__ import annotations

import json
import os
import shutil
import socket
import stat
import uuid
from collections.abc import Iterator
from pathlib import Path

import psutil
import psycopg
import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from headrace.errors import ServiceError
from headrace.local import postgres as postgres_module
from headrace.local import service
from headrace.local import services as services_module
from headrace.local.postgres import Postgres
from headrace.local.service import choose_port, is_free
from headrace.local.services import Services
from headrace.settings import Settings

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root has to look like somebody else")


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as holder:
        holder.bind(("127.0.0.1", 0))
        holder.listen()
        yield holder.getsockname()[1]


def unused_port() -> int:
    return choose_port("test", 0, 0)


def write_everywhere(services: Services, mark: str) -> None:
    admin = AdminClient({"bootstrap.servers": services.bootstrap})
    for made in admin.create_topics([NewTopic(mark, 1, 1)]).values():
        made.result(20)
    producer = Producer({"bootstrap.servers": services.bootstrap, "acks": "all"})
    producer.produce(mark, b"kept")
    assert producer.flush(20) == 0
    with psycopg.connect(services.store_url) as connection:
        connection.execute("create table if not exists kept (mark text)")
        connection.execute("insert into kept values (%s)", (mark,))


def read_everywhere(services: Services, mark: str) -> tuple[bytes | None, int]:
    consumer = Consumer(
        {"bootstrap.servers": services.bootstrap, "group.id": mark, "enable.auto.commit": False}
    )
    consumer.assign([TopicPartition(mark, 0, 0)])
    message = consumer.poll(20)
    consumer.close()
    with psycopg.connect(services.store_url) as connection:
        row = connection.execute("select count(*) from kept where mark = %s", (mark,)).fetchone()
    return (message.value() if message else None), (row[0] if row else 0)


def test_data_is_kept_over_a_stop_and_a_crash(services: Services) -> None:
    mark = f"kept-{uuid.uuid4()}"
    write_everywhere(services, mark)
    ports = (services.bootstrap, services.postgres.port)

    services.stop()
    assert Services.running(services.folder) is None
    services.start()
    assert read_everywhere(services, mark) == (b"kept", 1)

    services.broker.kill()
    services.postgres.kill()
    services.broker.start()
    services.postgres.start()
    services.publish()
    assert read_everywhere(services, mark) == (b"kept", 1)
    assert (services.bootstrap, services.postgres.port) == ports


def test_other_processes_find_the_services(services: Services) -> None:
    running = Services.running(services.folder, services.settings)
    assert running is not None
    assert (running.bootstrap, running.store_url, running.pid) == (
        services.bootstrap,
        services.store_url,
        os.getpid(),
    )
    assert {fact.pid for fact in running.facts} == {services.broker.pid, services.postgres.pid}
    assert all(psutil.pid_exists(fact.pid) for fact in running.facts)


def test_the_file_of_a_dead_process_is_not_believed(services: Services, tmp_path: Path) -> None:
    told = json.loads((services.state / "services.json").read_text())
    (tmp_path / ".headrace").mkdir()
    (tmp_path / ".headrace/services.json").write_text(json.dumps({**told, "created": told["created"] - 1}))
    assert Services.running(tmp_path) is None


def test_the_password_is_for_its_owner_only(services: Services) -> None:
    file = services.state / "postgres.password"
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert file.read_text() not in (services.state / "services.json").read_text()
    assert file.read_text() not in repr(Services.running(services.folder))
    wrong = services.store_url.replace(file.read_text(), "wrong")
    with pytest.raises(psycopg.OperationalError, match="password authentication failed"):
        psycopg.connect(wrong)


def test_postgres_is_set_up_for_change_capture_and_durability(services: Services) -> None:
    expected = {
        "wal_level": "logical",
        "fsync": "on",
        "synchronous_commit": "on",
        "listen_addresses": "127.0.0.1",
    }
    with psycopg.connect(services.store_url) as connection:
        rows = connection.execute(
            "select name, setting from pg_settings where name = any(%s)", (list(expected),)
        )
        assert dict(rows.fetchall()) == expected


def test_nothing_listens_beyond_this_machine(services: Services) -> None:
    for pid in (services.broker.pid, services.postgres.pid):
        listening = [
            c.laddr.ip for c in psutil.Process(pid).net_connections() if c.status == psutil.CONN_LISTEN
        ]
        assert listening
        assert {ip.removeprefix("::ffff:") for ip in listening} == {"127.0.0.1"}


def test_a_topic_is_never_made_by_a_typing_error(services: Services) -> None:
    name = f"typo-{uuid.uuid4()}"
    admin = AdminClient({"bootstrap.servers": services.bootstrap})
    admin.list_topics(name, timeout=20)
    assert name not in admin.list_topics(timeout=20).topics


def test_a_second_start_in_the_same_folder_names_the_first(services: Services) -> None:
    with pytest.raises(ServiceError, match=rf"already runs in this folder \(process {os.getpid()}\)"):
        Services(services.folder, services.settings).start()
    assert services.broker.is_running()


def test_a_fixed_port_that_is_taken(tmp_path: Path, taken_port: int) -> None:
    settings = Settings(folder=tmp_path, kafka_port=taken_port, store_url="")
    before = {process.pid for process in psutil.Process().children(recursive=True)}
    with pytest.raises(ServiceError, match=f"port {taken_port} for kafka is taken"):
        Services(tmp_path, settings).start()
    assert {process.pid for process in psutil.Process().children(recursive=True)} <= before


def test_a_port_that_was_ours_is_given_up_when_somebody_took_it(taken_port: int) -> None:
    assert choose_port("kafka", 0, taken_port) != taken_port
    free = unused_port()
    assert choose_port("kafka", 0, free) == free
    assert is_free(free)


def test_no_two_services_are_given_the_same_port(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither listens yet when the other one is given its port."""
    first, second, kept = unused_port(), unused_port(), unused_port()
    monkeypatch.setattr(service, "_given", set())
    throws = iter([first, first, kept, second])
    monkeypatch.setattr("random.randint", lambda *_: next(throws))
    assert choose_port("kafka", 0, kept) == kept
    assert [choose_port(name, 0, 0) for name in ("postgres", "kafka controller")] == [first, second]


def test_an_existing_kafka_and_postgres_are_used(services: Services, tmp_path: Path) -> None:
    settings = Settings(folder=tmp_path, kafka_bootstrap=services.bootstrap, store_url=services.store_url)
    with Services(tmp_path, settings) as external:
        assert external.embedded == []
        assert (external.bootstrap, external.store_url) == (services.bootstrap, services.store_url)
        running = Services.running(tmp_path, settings)
        assert running is not None
        assert running.store_url == services.store_url


def test_an_unreachable_broker(services: Services, tmp_path: Path) -> None:
    address = f"127.0.0.1:{unused_port()}"
    settings = Settings(
        folder=tmp_path, kafka_bootstrap=address, store_url=services.store_url, connect_seconds=1.0
    )
    with pytest.raises(ServiceError, match=f"Kafka at {address} did not answer in 1 s: .*refused") as caught:
        Services(tmp_path, settings).start()
    assert "kafka_bootstrap" in caught.value.hint


def test_an_unreachable_postgres_does_not_show_the_password(services: Services, tmp_path: Path) -> None:
    port = unused_port()
    settings = Settings(
        folder=tmp_path,
        kafka_bootstrap=services.bootstrap,
        store_url=f"postgresql://me:s3cret@127.0.0.1:{port}/shop",
    )
    with pytest.raises(ServiceError, match=f"Postgres at 127.0.0.1:{port}/shop cannot be used") as caught:
        Services(tmp_path, settings).start()
    assert "s3cret" not in str(caught.value)


def test_a_full_disk_is_noticed_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(services_module, "SPACE_NEEDED", 2**62)
    with pytest.raises(ServiceError, match="MB free on this disk"):
        Services(tmp_path, Settings(folder=tmp_path)).start()


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / ".headrace").write_text("a file where a folder should be")
    with pytest.raises(ServiceError, match="cannot write here"):
        Services(tmp_path, Settings(folder=tmp_path)).start()


def test_a_service_that_dies_while_starting_shows_its_last_words(tmp_path: Path) -> None:
    store = Postgres(tmp_path)
    store.start()
    store.stop()
    (tmp_path / "postgres/data/PG_VERSION").write_text("7\n")
    with pytest.raises(
        ServiceError, match=r"(?s)postgres ended while it was starting.*FATAL.*version"
    ) as caught:
        store.start()
    assert str(store.log) in caught.value.hint
    assert not store.is_running()


@as_root
@pytest.mark.parametrize("identity", ["namespace:1", "uid:65534"])
def test_root_runs_postgres_as_an_ordinary_user(
    tmp_path_factory: pytest.TempPathFactory, identity: str
) -> None:
    # pytest's folders are closed to others; only the namespace may need no more than that.
    folder = tmp_path_factory.mktemp("closed") if identity.startswith("namespace") else Path("/var/tmp")
    state = folder / f"state-{uuid.uuid4().hex}"
    state.mkdir()
    store = Postgres(state, identity=identity)
    modes = {parent: parent.stat().st_mode for parent in folder.parents}
    try:
        store.start()
        owner = 0 if identity.startswith("namespace") else 65534
        assert (state / "postgres/data/PG_VERSION").stat().st_uid == owner
        assert {parent: parent.stat().st_mode for parent in folder.parents} == modes
    finally:
        store.stop()
        shutil.rmtree(state)


@as_root
def test_root_without_namespaces_in_a_closed_folder_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    real = postgres_module._can
    monkeypatch.setattr(
        postgres_module, "_can", lambda identity, folder: "uid" in identity and real(identity, folder)
    )
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    with pytest.raises(ServiceError, match="refuses to run as root") as caught:
        Postgres(closed / "state").start()
    assert "store_url" in caught.value.hint


@as_root
def test_root_in_a_folder_that_nobody_else_may_enter(tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    store = Postgres(closed / "state")
    store.log.parent.mkdir(parents=True)
    store.start()
    store.stop()
    assert stat.S_IMODE(closed.stat().st_mode) == 0o700
