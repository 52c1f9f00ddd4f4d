"""LangGraph's public conformance suite, over gRPC, on every backend and topology."""

from collections.abc import AsyncIterator

import pytest
from langgraph.checkpoint.conformance import checkpointer_test, validate
from langgraph.checkpoint.conformance.capabilities import ALL_CAPABILITIES, DetectedCapabilities

from threadkeep.langgraph import ThreadkeepSaver

TESTS_OF = {
    "put": 17, "put_writes": 10, "get_tuple": 10, "list": 16, "delete_thread": 5,
    "delete_for_runs": 7, "copy_thread": 8, "prune": 8,
}  # fmt: skip
"""How many tests the suite has for each capability: nothing is skipped, nothing is absent."""


@pytest.mark.rule("R20", "R22")
@pytest.mark.case("B11", "B26")
async def test_all_capabilities_pass(saver: ThreadkeepSaver) -> None:
    @checkpointer_test(name="ThreadkeepSaver")
    async def threadkeep_saver() -> AsyncIterator[ThreadkeepSaver]:
        yield saver

    assert DetectedCapabilities.from_instance(saver).detected == ALL_CAPABILITIES
    report = await validate(threadkeep_saver, capabilities=set(TESTS_OF))
    assert {name: one.failures for name, one in report.results.items() if one.failures} == {}
    ran = {name: (one.tests_passed, one.tests_failed, one.tests_skipped) for name, one in report.results.items()}
    assert {name: counts for name, counts in ran.items() if name in TESTS_OF} == {
        name: (count, 0, 0) for name, count in TESTS_OF.items()
    }
    assert report.passed_all()
