"""The same Kafka credentials in the words of both clients: librdkafka's and Java's."""

from __future__ import annotations

from collections.abc import Mapping

from headrace.errors import UsageError

# librdkafka refuses an option it does not know; Java would only print a warning, and a password with it.
JAVA_ONLY = frozenset(
    {
        "sasl.jaas.config",
        "sasl.client.callback.handler.class",
        "sasl.login.callback.handler.class",
        "ssl.truststore.type",
        "ssl.truststore.location",
        "ssl.truststore.password",
        "ssl.truststore.certificates",
        "ssl.keystore.type",
    }
)
LIBRDKAFKA_ONLY = frozenset(
    {
        "sasl.username",
        "sasl.password",
        "sasl.mechanisms",
        "ssl.ca.location",
        "ssl.certificate.location",
        "ssl.key.location",
        "enable.ssl.certificate.verification",
    }
)
LOGIN_MODULE = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}


def java_from_librdkafka(options: Mapping[str, str]) -> dict[str, str]:
    """What the Java client must be told so that it logs in as librdkafka does with these options."""
    derived: dict[str, str] = {}
    mechanism = options.get("sasl.mechanism") or options.get("sasl.mechanisms")
    if mechanism:
        derived["sasl.mechanism"] = mechanism
    if "sasl.username" in options and "sasl.password" in options:
        derived["sasl.jaas.config"] = _jaas(
            mechanism or "PLAIN", options["sasl.username"], options["sasl.password"]
        )
    if authority := options.get("ssl.ca.location"):
        derived |= {"ssl.truststore.type": "PEM", "ssl.truststore.location": authority}
    certificate, key = options.get("ssl.certificate.location"), options.get("ssl.key.location")
    # Java wants the certificate and its key in one PEM file.
    if certificate and certificate == key:
        derived |= {"ssl.keystore.type": "PEM", "ssl.keystore.location": certificate}
    return derived


def _jaas(mechanism: str, username: str, password: str) -> str:
    module = LOGIN_MODULE.get(mechanism.upper())
    if module is None:
        raise UsageError(
            f"sasl.mechanism {mechanism} with a user name and password is not known for the Java client",
            where="[kafka]",
            hint=f"use one of {', '.join(LOGIN_MODULE)}, or give sasl.jaas.config in [kafka.java]",
        )
    return f'{module} required username="{_quoted(username)}" password="{_quoted(password)}";'


def _quoted(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
