"""The cache of resolutions forgets what a change touches, and stays within its size."""

from hypothesis import given
from hypothesis import strategies as st

from threadkeep_config.domain.values import EntityType
from threadkeep_config.store.cache import Cache, Entry

sources = st.tuples(st.sampled_from(list(EntityType)), st.sampled_from("abc"))
puts = st.tuples(st.integers(0, 9), st.lists(sources, min_size=1, max_size=3), st.integers(0, 2000))


@given(st.lists(puts | sources, max_size=40))
def test_what_a_change_touches_is_forgotten_and_the_size_holds(steps: list) -> None:
    cache = Cache(10_000)
    known: dict[int, set] = {}
    for step in steps:
        if isinstance(step[0], EntityType):
            cache.forget([step])
            known = {key: sources for key, sources in known.items() if step not in sources}
        else:
            key, named, size = step
            cache.put(key, Entry(key, tuple(named), size))
            known[key] = set(named)
        assert cache.size <= 10_000
        for key in range(10):
            entry = cache.get(key)
            assert entry is None or (key in known and set(entry.sources) == known[key])
    cache.clear()
    assert cache.size == 0
    assert all(cache.get(key) is None for key in range(10))
