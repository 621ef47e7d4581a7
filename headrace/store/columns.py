"""Columns that tables of an earlier version lack."""

from __future__ import annotations


def add_column(table: str, column: str, type_: str) -> str:
    """A statement that may run again, and locks the table only if the column is missing.

    `ALTER TABLE … IF NOT EXISTS` would wait for every running batch, and let all others wait meanwhile.
    """
    return f"""
        DO $$ BEGIN
            IF NOT EXISTS (
                SELECT 1 FROM pg_attribute
                WHERE attrelid = 'headrace.{table}'::regclass AND attname = '{column}' AND NOT attisdropped
            ) THEN
                ALTER TABLE headrace.{table} ADD COLUMN IF NOT EXISTS {column} {type_};
            END IF;
        END $$
    """
