"""Whose patterns a caller sees: their alerts name single customers."""

from __future__ import annotations

import shutil
from pathlib import Path

from headrace.ops.load import load_app
from headrace.serve.access import Access, Caller

TURANMART = Path(__file__).parents[2] / "apps" / "turanmart"
BY_CARD = """
app.pattern("by_card", of="payments", key="card_hash", count=3, within="1 minute")
app.pattern("with_sums", of="payments", key="customer_id", show=["amount"], count=3, within="1 minute")
"""


def test_classified_fields_are_for_the_roles_of_the_contract(tmp_path: Path) -> None:
    shutil.copytree(TURANMART, tmp_path / "shop")
    with (tmp_path / "shop" / "app.py").open("a") as file:
        file.write(BY_CARD)
    access = Access(load_app(tmp_path / "shop"), {})

    def seen(caller: Caller) -> set[str]:
        return {pattern.name for pattern in access.visible_patterns(caller)}

    shipped = {
        *("card_testing", "failed_logins", "guessed_passwords"),
        *("many_purchase_attempts", "abandoned_checkout"),
    }
    assert seen(Caller()) == shipped
    assert seen(Caller(frozenset(["fraud-service"]), anonymous=False)) == shipped | {"by_card", "with_sums"}
    assert seen(Caller(frozenset(["nobody"]), anonymous=False)) == {"abandoned_checkout"}
