from __future__ import annotations

import dataclasses
import stat
import tomllib
from pathlib import Path

import pytest

from headrace.errors import UsageError
from headrace.settings import Settings, fields, load
from headrace.settings_reference import help_lines, reference_page, reference_toml


def write(folder: Path, text: str) -> Path:
    file = folder / "headrace.toml"
    file.write_text(text)
    return file


def test_defaults_without_a_file(tmp_path: Path) -> None:
    assert load(tmp_path, {}) == Settings(folder=tmp_path)


def test_environment_wins_over_the_file_and_the_file_over_the_default(tmp_path: Path) -> None:
    write(tmp_path, "kafka_port = 9092\npostgres_port = 5432\n")
    settings = load(tmp_path, {"HEADRACE_KAFKA_PORT": "9999", "UNRELATED": "x"})
    assert (settings.kafka_port, settings.postgres_port, settings.spark_master) == (9999, 5432, "local[*]")


def test_unknown_name_in_the_file_names_line_and_nearest(tmp_path: Path) -> None:
    file = write(tmp_path, '# ports\nkafka_port = 1\n\nkafka_bootstrp = "a:1"\n')
    with pytest.raises(UsageError) as caught:
        load(tmp_path, {})
    assert caught.value.where == f"{file}:4"
    assert "kafka_bootstrp" in caught.value.what
    assert "'kafka_bootstrap'" in caught.value.hint


def test_unknown_table_names_its_line(tmp_path: Path) -> None:
    file = write(tmp_path, "kafka_port = 1\n[sprak]\nx = 1\n")
    with pytest.raises(UsageError) as caught:
        load(tmp_path, {})
    assert (caught.value.where, caught.value.hint) == (f"{file}:2", "did you mean 'spark'?")


def test_unknown_environment_variable(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="HEADRACE_MASK_SALTT: unknown setting") as caught:
        load(tmp_path, {"HEADRACE_MASK_SALTT": "very secret"})
    assert "mask_salt" in caught.value.hint
    assert "very secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ('kafka_port = "9092"', "'kafka_port' must be a whole number, not '9092'"),
        ("kafka_port = true", "'kafka_port' must be a whole number, not True"),
        ("app = 3", "'app' must be text, not 3"),
        ("kafka = 3", "'kafka' must be a table, not a secret"),
        ("mask_salt = 4711", "'mask_salt' must be text, not a secret"),
        ("kafka_port = = 1", "not valid TOML"),
    ],
)
def test_wrong_type_names_file_and_line(tmp_path: Path, text: str, complaint: str) -> None:
    file = write(tmp_path, f"# first line\n{text}\n")
    with pytest.raises(UsageError) as caught:
        load(tmp_path, {})
    assert caught.value.where == f"{file}:2"
    assert complaint in caught.value.what


def test_a_whole_number_is_a_number(tmp_path: Path) -> None:
    write(tmp_path, "trigger_seconds = 5")
    assert load(tmp_path, {"HEADRACE_START_SECONDS": "7"}) == dataclasses.replace(
        Settings(folder=tmp_path), trigger_seconds=5.0, start_seconds=7.0
    )


def test_credentials_in_the_words_of_both_clients(tmp_path: Path) -> None:
    write(
        tmp_path,
        """
        [kafka]
        security.protocol = "SASL_SSL"
        sasl.mechanism = "SCRAM-SHA-512"
        sasl.username = "mill"
        sasl.password = 'pass"word'
        ssl.ca.location = "/ca.pem"
        [kafka.librdkafka]
        linger.ms = 5
        [kafka.java]
        max.poll.records = 100
        """,
    )
    settings = load(tmp_path, {})
    assert settings.librdkafka_options() == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.username": "mill",
        "sasl.password": 'pass"word',
        "ssl.ca.location": "/ca.pem",
        "linger.ms": "5",
    }
    assert settings.java_kafka_options() == {
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
        'username="mill" password="pass\\"word";',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": "/ca.pem",
        "max.poll.records": "100",
    }


def test_plain_login_and_an_unknown_mechanism() -> None:
    login = {"sasl.username": "a", "sasl.password": "b"}
    plain = Settings(kafka={**login, "sasl.mechanism": "PLAIN"})
    assert "plain.PlainLoginModule" in plain.java_kafka_options()["sasl.jaas.config"]
    with pytest.raises(UsageError, match="GSSAPI"):
        Settings(kafka={**login, "sasl.mechanism": "GSSAPI"}).java_kafka_options()


def test_spark_options_quoted_or_not(tmp_path: Path) -> None:
    write(tmp_path, '[spark]\nspark.ui.enabled = false\n"spark.sql.shuffle.partitions" = 4\n')
    expected = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "4"}
    assert load(tmp_path, {}).spark_options() == expected


def test_salt_is_made_once_for_its_owner_only(tmp_path: Path) -> None:
    settings = load(tmp_path, {})
    salt = settings.salt()
    assert len(salt) >= 32
    assert load(tmp_path, {}).salt() == salt
    assert stat.S_IMODE((tmp_path / ".headrace/salt").stat().st_mode) == 0o600
    assert load(tmp_path, {"HEADRACE_MASK_SALT": "given"}).salt() == "given"


def test_secrets_are_not_printed() -> None:
    settings = Settings(
        mask_salt="s3cret", store_url="postgresql://u:s3cret@h/d", kafka={"sasl.password": "s3cret"}
    )
    assert "s3cret" not in repr(settings)


def test_reference_file_is_valid_and_lists_every_default(tmp_path: Path) -> None:
    uncommented = "\n".join(
        line.removeprefix("# ")
        for line in reference_toml().splitlines()
        if " = " in line or line.startswith("# [")
    )
    write(tmp_path, uncommented)
    assert set(tomllib.loads(uncommented)) == {f.name for f in fields()}
    assert load(tmp_path, {}) == Settings(folder=tmp_path)


def test_documentation_page_is_current() -> None:
    page = Path(__file__).parent.parent / "docs" / "settings.md"
    assert page.read_text() == reference_page(), (
        "make it again with headrace.settings_reference.reference_page"
    )


def test_help_has_every_setting() -> None:
    assert [line.partition(":")[0] for line in help_lines()] == [f.name for f in fields()]
