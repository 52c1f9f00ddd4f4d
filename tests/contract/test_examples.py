"""The requests that generated tests send are valid: the smallest that the rules allow passes the server's checks."""

import pytest

from tests.support.descriptors import Rpc, complete, id_fields, minimal, rpcs
from threadkeep_chassis.rules import method_rule
from threadkeep_chassis.validation import Validator


@pytest.mark.rule("X8")
@pytest.mark.parametrize("rpc", rpcs(), ids=lambda rpc: rpc.name)
def test_the_smallest_request_passes_the_field_rules_with_any_of_its_ids(rpc: Rpc) -> None:
    """Else a generated test could be refused for something that it does not test."""
    validator = Validator()
    rule = method_rule(f"/{rpc.method.containing_service.full_name}/{rpc.method.name}")
    assert rule is not None
    validator.check_request(rule, minimal(rpc.request), first=not rpc.method.client_streaming)
    for place in id_fields(rpc.method.input_type):
        request = minimal(rpc.request)
        complete(place, request)
        place.set(request, "an-id")
        validator.check_request(rule, request)
