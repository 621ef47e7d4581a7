"""Finding the log and the store that the commands of a folder talk to."""

from __future__ import annotations

from headrace.connections import Connections
from headrace.errors import ServiceError
from headrace.local.services import Services
from headrace.settings import Settings


def found_connections(settings: Settings) -> Connections:
    """Of a running `headrace up` in the folder, or of the settings if they name both."""
    running = Services.running(settings.folder, settings)
    if running is not None:
        return Connections(
            running.bootstrap, running.kafka_options, running.java_kafka_options, running.store_url
        )
    if settings.kafka_bootstrap and settings.store_url:
        return Connections(
            settings.kafka_bootstrap,
            settings.librdkafka_options(),
            settings.java_kafka_options(),
            settings.store_url,
        )
    raise ServiceError(
        "nothing is running in this folder",
        hint="start the services with: headrace up, or set kafka_bootstrap and store_url",
    )


def connections_of(services: Services) -> Connections:
    return Connections(
        services.bootstrap, services.kafka_options, services.java_kafka_options, services.store_url
    )
