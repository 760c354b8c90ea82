"""What this workspace's host wires in: the payment service, as two tools (`ARCHMAX_HOST=refund_host:wire`)."""

from __future__ import annotations

from typing import Any

#: the payments of the shop; a real host would ask its payment service
PAYMENTS = {
    "P-100": {"payment": "P-100", "customer": "Ines Falk", "cents": 4900, "refundable": True},
    "P-200": {"payment": "P-200", "customer": "Ines Falk", "cents": 129_900, "refundable": True},
    "P-300": {"payment": "P-300", "customer": "Bo Aydin", "cents": 1500, "refundable": False},
}


def find_payment(given: dict[str, Any], context: Any) -> dict[str, Any]:
    """A handler takes the call's input and its context; what it answers becomes the tool's text."""
    found = PAYMENTS.get(given["payment"])
    if found is None:
        raise ValueError(f"no payment {given['payment']!r}")
    return found


def pay_back(given: dict[str, Any], context: Any) -> dict[str, Any]:
    """The key is the same for every attempt at one call: handed to the payment service, it makes a repeat harmless."""
    return {"payment": given["payment"], "cents": given["cents"], "receipt": f"R-{context.idempotency_key}"}


def wire(context: Any) -> dict[str, Any]:
    """Called once per assembly; returns keywords of `archmax.create_agent`."""
    payment = {"type": "string", "description": "id of the payment, like P-100"}
    return {
        "tools": {
            "find_payment": {
                "description": "Look a payment up by its id.",
                "input_schema": {
                    "type": "object",
                    "properties": {"payment": payment},
                    "required": ["payment"],
                },
                "handler": find_payment,
            },
            "pay_back": {
                "description": "Pay a refund out. Cannot be undone.",
                "input_schema": {
                    "type": "object",
                    "properties": {"payment": payment, "cents": {"type": "integer"}},
                    "required": ["payment", "cents"],
                },
                "handler": pay_back,
                "at_most_once": True,
            },
        }
    }
