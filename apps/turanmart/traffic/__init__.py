"""TuranMart's shoppers: a seeded model that makes the same records from the same options, byte for byte.

from traffic import Traffic, records
for record in records(Traffic(seed=7, events=1000)): ...
"""

from .model import records
from .options import DEFAULT_STREAMS, Traffic

__all__ = ["DEFAULT_STREAMS", "Traffic", "records"]
