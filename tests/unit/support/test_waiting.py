"""The helpers that all tests lean on: waiting for a condition, and reading an error."""

import grpc
import pytest
from google.protobuf import any_pb2
from google.rpc import error_details_pb2, status_pb2

from tests.support.calls import STATUS_KEY, error_details, scope
from tests.support.waiting import eventually


async def test_eventually_gives_what_became_true() -> None:
    answers = iter([None, 0, "", "there"])
    assert await eventually(lambda: next(answers), interval=0) == "there"


async def test_eventually_takes_a_failed_assertion_as_not_yet() -> None:
    answers = iter([False, False, True])

    async def condition() -> bool:
        assert next(answers)
        return True

    assert await eventually(condition, interval=0)


async def test_eventually_gives_up_and_says_what_it_saw() -> None:
    with pytest.raises(AssertionError, match="'nothing yet'"):
        await eventually(lambda: _never("nothing yet"), timeout=0, interval=0)


def _never(answer: str) -> str:
    raise AssertionError(answer)


async def test_an_error_in_a_condition_is_not_swallowed() -> None:
    def broken() -> bool:
        raise KeyError("a bug in the test")

    with pytest.raises(KeyError):
        await eventually(broken)


def test_error_details_reads_reason_metadata_and_violations() -> None:
    info = error_details_pb2.ErrorInfo(domain="threadkeep", reason="FIELD_INVALID", metadata={"limit": "a"})
    request = error_details_pb2.BadRequest()
    request.field_violations.add(field="session_id", description="must not be empty")
    status = status_pb2.Status(code=3, message="no")
    for detail in (info, request):
        packed = any_pb2.Any()
        packed.Pack(detail)
        status.details.append(packed)
    error = grpc.aio.AioRpcError(
        grpc.StatusCode.INVALID_ARGUMENT,
        grpc.aio.Metadata(),
        grpc.aio.Metadata((STATUS_KEY, status.SerializeToString())),
        details="no",
    )
    details = error_details(error)
    assert (details.code, details.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")
    assert details.metadata == {"limit": "a"}
    assert details.violations == {"session_id": "must not be empty"}


@pytest.mark.rule("X1")
def test_the_empty_scope_is_sent_explicitly_with_the_operator_grant() -> None:
    assert scope() == (("threadkeep-scope-bin", b"{}"), ("threadkeep-grant-bin", b'{"all":true}'))
