"""`archmax test` (07 §7): the suite drawn on stderr as it runs, the counts or the JSON document on stdout."""

from __future__ import annotations

import json

from archmax.cli.invocation import Invocation
from archmax.cli.render.cases import TestView, counts_line
from archmax.cli.render.style import one_line
from archmax.testing import run_tests, suite_json


async def run(invocation: Invocation) -> int:
    slug, wanted = invocation.slug(), invocation.arguments.get("filter")
    view = TestView(invocation.err, verbose=invocation.flag("verbose"))
    try:
        suite = await run_tests(
            slug,
            root=invocation.root,
            filter=wanted,
            on_event=view.on_event,
            on_selection=None if invocation.flag("json") else view.on_selection,
            on_case_start=view.on_case_start,
            on_case_result=lambda result: view.on_case_result(result.to_json()),
            live=invocation.flag("live"),
        )
    finally:
        view.close()
    if wanted is not None and not suite.results and suite.skipped is None:
        invocation.err.write(
            f"Error: no cases matched '{one_line(wanted)}' ({suite.discovered} discovered)\n"
        )
        return 1
    results = [result.to_json() for result in suite.results]
    if suite.skipped is None:
        view.finish(results)
    if invocation.flag("json"):
        document = suite_json(slug, suite)
        invocation.out.write(json.dumps(document, indent=2, ensure_ascii=False) + "\n")
    elif suite.skipped is not None:
        invocation.out.write(f"suite skipped — {suite.skipped}\n")
    else:
        invocation.out.write(counts_line(results) + "\n")
    return suite.exit_code
