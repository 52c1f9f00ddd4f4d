"""What the framework would refuse by itself is refused with a reason, like everything else (X6)."""

import grpc
import pytest

from tests.support.calls import refused, scope
from tests.support.suite import Suite

PATH = "/threadkeep.runtime.v1.TaskService/"


@pytest.mark.rule("X6")
@pytest.mark.suite(backends=["memory"])
async def test_an_unknown_method_has_a_reason(shared_suite: Suite) -> None:
    channel = shared_suite.channel("runtime")
    for path in (PATH + "Nonsense", "/nowhere.v1.NoService/Get"):
        details = await refused(channel.unary_unary(path)(b"", metadata=scope(tenant="a"), timeout=30))
        assert (details.code, details.reason) == (grpc.StatusCode.UNIMPLEMENTED, "METHOD_UNKNOWN")


@pytest.mark.rule("X6")
@pytest.mark.suite(backends=["memory"])
async def test_a_request_that_is_no_message_has_a_reason(shared_suite: Suite) -> None:
    channel = shared_suite.channel("runtime")
    for name in ("GetTask", "SubmitTask"):
        call = channel.unary_unary(PATH + name)(b"\xff\xff\xff", metadata=scope(tenant="a"), timeout=30)
        details = await refused(call)
        assert (details.code, details.reason) == (grpc.StatusCode.INVALID_ARGUMENT, "FIELD_INVALID")
        assert list(details.violations) == ["request"]
    live = channel.stream_unary("/threadkeep.runtime.v1.WorkerService/PublishLive")
    details = await refused(live(iter([b"\xff\xff"]), metadata=scope(tenant="a"), timeout=30))
    assert details.reason == "FIELD_INVALID"
