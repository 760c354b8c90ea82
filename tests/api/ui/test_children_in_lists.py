"""Lists of sessions and the sub-workflows they called, over HTTP."""

from __future__ import annotations

from tests.support.desk import ADMIN, bearer
from tests.support.fleet import RunningFleet, eventually, run_turn


async def test_children_are_listed_when_asked_for_and_by_their_parent(desk: RunningFleet) -> None:
    """design: Lists and filters."""
    wanted = {"orders_to_enrich": [{"order_id": "SO-4103"}]}
    asked = {"sessionId": "filters-1", "trigger": "enrichment_requested", "variables": wanted}
    async with desk.client(headers=bearer(ADMIN)) as client:
        await run_turn(client, "/v1/workflows/order-desk/sessions", asked)

        async def listed(**query: str) -> list[str]:
            answer = await client.get("/v1/sessions", params={"limit": "500", **query})
            return [line["sessionId"] for line in answer.json()["items"]]

        async def shown() -> bool:
            return await listed(parent="filters-1") == ["filters-1~1"]

        await eventually(shown)
        assert "filters-1" in await listed()
        assert "filters-1~1" not in await listed()
        assert "filters-1~1" in await listed(children="true")
        assert "filters-1~1" in await listed(children="true", workflow="enrich-order", status="completed")
