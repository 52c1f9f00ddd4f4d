"""Every share is some replica's, and none has two more than another (P1)."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from threadkeep_projection.domain.sharing import portion


@pytest.mark.rule("P1")
@given(st.integers(0, 64), st.sets(st.text(max_size=3), min_size=1, max_size=12))
def test_portions_make_up_the_shares(share_count: int, replicas: set[str]) -> None:
    living = sorted(replicas)
    portions = [portion(share_count, living, one) for one in living]
    assert sum(portions) == share_count
    assert max(portions) - min(portions) <= 1
    assert portion(share_count, living, "nobody of them") == 0
