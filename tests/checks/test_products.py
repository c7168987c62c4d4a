"""The tables of measured products are those that their script writes."""

from conftest import SOURCE, ran


def test_written_by_the_script():
    ran(SOURCE / "tests/tools/products.py", "--check")
