"""A contract as a Spark schema."""

from __future__ import annotations

from collections.abc import Iterable

from pyspark.sql import types as spark

from headrace.contracts.model import Contract, Field, Type

_SCALARS: dict[str, spark.DataType] = {
    "string": spark.StringType(),
    "integer": spark.LongType(),
    "number": spark.DoubleType(),
    "boolean": spark.BooleanType(),
    "timestamp": spark.TimestampType(),
    "date": spark.DateType(),
}


def spark_schema(contract: Contract) -> spark.StructType:
    """The shape of an event. Everything is nullable: what is required is a rule, and a rule can be broken."""
    return _struct(contract.fields)


def spark_type(type_: Type) -> spark.DataType:
    match type_.kind:
        case "decimal":
            return spark.DecimalType(type_.precision, type_.scale)
        case "object":
            return _struct(type_.fields)
        case "array":
            return spark.ArrayType(_element(type_), containsNull=True)
        case "map":
            return spark.MapType(spark.StringType(), _element(type_), valueContainsNull=True)
        case kind:
            return _SCALARS[kind]


def _struct(fields: Iterable[Field]) -> spark.StructType:
    return spark.StructType([spark.StructField(f.name, spark_type(f.type), nullable=True) for f in fields])


def _element(type_: Type) -> spark.DataType:
    if type_.element is None:
        raise ValueError(f"a {type_.kind} without an element type")
    return spark_type(type_.element.type)
