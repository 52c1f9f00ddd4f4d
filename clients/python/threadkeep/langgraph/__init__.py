"""LangGraph on threadkeep: a checkpoint saver whose threads are sessions.

saver = ThreadkeepSaver(Client("127.0.0.1:7433", scope={"tenant": "acme"}))
graph = builder.compile(checkpointer=saver)
graph.invoke({...}, {"configurable": {"thread_id": "a-session-id"}})
"""

from threadkeep.langgraph.saver import ThreadkeepSaver
from threadkeep.langgraph.serde import DecodingRefused, EncodingRefused, StrictSerializer

__all__ = ["DecodingRefused", "EncodingRefused", "StrictSerializer", "ThreadkeepSaver"]
