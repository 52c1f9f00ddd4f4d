"""LangGraph on threadkeep: a checkpoint saver whose threads are sessions, and a store for memory across them.

saver = ThreadkeepSaver(Client("127.0.0.1:7433", scope={"tenant": "acme"}))
store = ThreadkeepStore(Client("127.0.0.1:7433", scope={"tenant": "acme"}))
graph = builder.compile(checkpointer=saver, store=store)
graph.invoke({...}, {"configurable": {"thread_id": "a-session-id"}})
"""

from threadkeep.langgraph.saver import ThreadkeepSaver
from threadkeep.langgraph.serde import DecodingRefused, EncodingRefused, StrictSerializer
from threadkeep.langgraph.store import ThreadkeepStore

__all__ = ["DecodingRefused", "EncodingRefused", "StrictSerializer", "ThreadkeepSaver", "ThreadkeepStore"]
