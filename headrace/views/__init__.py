"""Stream → table: what Spark reduces a batch to, before the store merges it."""
