"""A session is one workflow's, whoever puts inputs into it."""

from __future__ import annotations

from tests.support.workers import WorkerFleet

AGENT = "states:\n  work:\n    instructions: Work.\n    triggers: { manual: }\n"


async def test_an_input_of_another_workflow_that_nobody_checked_is_refused(worker_fleet: WorkerFleet) -> None:
    worker_fleet.write(
        {
            "workflows/one/workflow.yaml": AGENT,
            "workflows/two/workflow.yaml": AGENT,
            "model.yaml": "- { text: done, repeat: true }\n",
        }
    )
    worker_fleet.start_worker()
    ends = []
    for workflow in ("one", "two", "one"):
        accepted = await worker_fleet.send("shared", workflow)
        ends.append(await worker_fleet.settled("shared", accepted.n))
    assert [end.outcome["kind"] for end in ends] == ["completed", "refused", "completed"]
    assert ends[1].outcome["problem"]["code"] == "workflow-mismatch"
    assert {end.workflow for end in ends} == {"one"}
