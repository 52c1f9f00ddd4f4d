"""A valid request for every RPC, with what it needs made first, so that tests can speak of every RPC.

Importing this package registers all of them; `example(name)` finds one, and `make(world)` gives its request.
"""

import importlib

from tests.support.examples.registry import Example, example, examples

for _service in ("common", "runtime", "outbox", "schedules", "store", "threads", "config", "artifacts", "projection"):
    importlib.import_module(f"tests.support.examples.{_service}")

__all__ = ["Example", "example", "examples"]
