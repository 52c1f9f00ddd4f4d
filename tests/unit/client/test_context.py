"""Scope and grant as call metadata: each is said once, which servers insist on."""

import pytest

from threadkeep._rpc.context import GRANT_KEY, SCOPE_KEY, CallContext

SCOPE = {"tenant": "acme"}


@pytest.mark.rule("X13")
@pytest.mark.parametrize(
    ("context", "named", "alone"),
    [
        (CallContext(), [], []),
        (CallContext(SCOPE), [SCOPE_KEY], [SCOPE_KEY]),
        (CallContext(None, "all"), [GRANT_KEY], [GRANT_KEY]),
        (CallContext(SCOPE, "all"), [SCOPE_KEY, GRANT_KEY], [GRANT_KEY]),
        (CallContext(SCOPE, [SCOPE]), [SCOPE_KEY, GRANT_KEY], [GRANT_KEY]),
    ],
)
def test_scope_and_grant_are_each_said_once(context: CallContext, named: list[str], alone: list[str]) -> None:
    assert [key for key, _ in context.metadata] == named
    assert [key for key, _ in context.grant_metadata] == alone
