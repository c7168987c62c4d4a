"""Stores of runs, as checks look at them."""

import contextlib
import sqlite3


def ask(database, *statements):
    """The rows that the last of the statements gives."""
    with contextlib.closing(sqlite3.connect(database, isolation_level=None)) as connection:
        return [connection.execute(statement).fetchall() for statement in statements][-1]


def count(database, table):
    try:
        return ask(database, f"SELECT count(*) FROM {table}")[0][0]
    except sqlite3.OperationalError:  # nothing is in it yet
        return 0


def content(database):
    """Everything that has to be the same whoever ran it; times and numbers of rows are not."""
    runs = """SELECT command, schedule, model, partition, seed, program_hash, name, value
        FROM runs JOIN metrics ON run_id = runs.id ORDER BY 1, 2, 7"""
    return ask(database, runs), ask(database, "SELECT command, failure FROM points ORDER BY 1")
