"""The settings as text: the reference file, the documentation page and the lines of `--help`."""

from __future__ import annotations

import dataclasses
import json
from typing import Any

from headrace.settings import PREFIX, fields


def reference_toml() -> str:
    """A headrace.toml that lists every setting with its default, commented out."""
    lines = ["# Every setting of Headrace with its default. Delete the # in front of what you change."]
    for f in fields():
        lines += ["", f"# {f.metadata['help']}"]
        lines.append(f"# [{f.name}]" if _is_table(f) else f"# {f.name} = {json.dumps(f.default)}")
    return "\n".join(lines) + "\n"


def reference_page() -> str:
    """docs/settings.md."""
    rows = [f"| `{f.name}` | {_default(f)} | {_variable(f)} | {f.metadata['help']} |" for f in fields()]
    return PAGE.format(rows="\n".join(rows))


def help_lines() -> list[str]:
    """One line for each setting, for `--help`."""
    return [f"{f.name}: {f.metadata['help']}" for f in fields()]


PAGE = """\
# Settings

Rising priority: the default, `headrace.toml` in the working folder, the environment. A name that is not in
this table is an error. This page is made from `headrace/settings.py`.

| setting | default | environment | what it is |
|---|---|---|---|
{rows}

The tables pass any option on as it is, without a check:

```toml
[kafka]                  # both clients: librdkafka (confluent-kafka) and Java (Spark)
security.protocol = "SASL_SSL"
sasl.mechanism = "SCRAM-SHA-512"
sasl.username = "headrace"
sasl.password = "..."
ssl.ca.location = "/etc/kafka/ca.pem"

[kafka.librdkafka]       # only librdkafka
queue.buffering.max.ms = 20

[kafka.java]             # only the Java client
max.poll.records = 5000

[spark]
spark.sql.session.timeZone = "UTC"
```

A user name and password for PLAIN or SCRAM are also given to the Java client as `sasl.jaas.config`, and
`ssl.ca.location` as a PEM trust store. Quote a name when one option is the beginning of another.
"""


def _is_table(f: dataclasses.Field[Any]) -> bool:
    return f.default is dataclasses.MISSING


def _default(f: dataclasses.Field[Any]) -> str:
    return "a table" if _is_table(f) else f"`{json.dumps(f.default)}`"


def _variable(f: dataclasses.Field[Any]) -> str:
    return "–" if _is_table(f) else f"`{PREFIX}{f.name.upper()}`"
