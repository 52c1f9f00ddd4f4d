"""The scripted model: the same step for the same conversation, in pieces, with templates and holds."""

import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from langchain_core.messages import AIMessage, AIMessageChunk, BaseMessage, HumanMessage, ToolMessage

from threadkeep.worker.models import build_model
from threadkeep.worker.scripted import ScriptedChatModel, ScriptError
from threadkeep.worker.secrets import Secrets

SCRIPT = [
    {
        "text": "Counting.",
        "tool_calls": [{"name": "count", "args": {"path": "{{input}}", "deep": [{"x": "{{ input }}"}]}}],
    },
    {
        "tool_calls": [
            {
                "name": "save",
                "args": {"n": "{{tool.count.words}}", "all": "{{tool.count}}", "t": "{{tool.count.words}} w"},
            }
        ]
    },
    {"text": "Done: {{tool.save}} of {{input}}, and this is long enough for several pieces."},
]


def _model(**options: Any) -> Any:
    provider = {"type": "scripted", "options_json": json.dumps({"script": SCRIPT, **options})}
    return build_model(provider, "", Secrets())


def _conversation() -> list[BaseMessage]:
    return [
        HumanMessage("an earlier turn"),
        AIMessage("an earlier answer"),
        HumanMessage("file.txt"),
    ]


async def test_a_whole_turn_is_played_by_the_script() -> None:
    model, messages = _model(), _conversation()
    first = await model.ainvoke(messages)
    assert first.text == "Counting."
    (call,) = first.tool_calls
    assert call["args"] == {"path": "file.txt", "deep": [{"x": "file.txt"}]}
    messages += [first, ToolMessage('{"words": 12}', name="count", tool_call_id=call["id"])]
    second = model.invoke(messages)
    assert second.tool_calls[0]["args"] == {"n": 12, "all": '{"words": 12}', "t": "12 w"}
    assert second.tool_calls[0]["id"] != call["id"]
    messages += [second, ToolMessage("ok", name="save", tool_call_id=second.tool_calls[0]["id"])]
    third = await model.ainvoke(messages)
    assert third.text == "Done: ok of file.txt, and this is long enough for several pieces."
    assert third.usage_metadata["output_tokens"] == len(third.text)
    with pytest.raises(ScriptError, match="3 steps"):
        model.invoke([*messages, third])


async def test_the_same_conversation_gives_the_same_answer_in_another_process() -> None:
    first, second = _model().invoke(_conversation()), _model().invoke(_conversation())
    assert (first.content, first.tool_calls) == (second.content, second.tool_calls)


async def test_text_and_calls_come_in_pieces_that_add_up() -> None:
    pieces = [piece async for piece in _model(chunk_characters=4).astream(_conversation())]
    assert [piece.text for piece in pieces if piece.text] == ["Coun", "ting", "."]
    assert sum(bool(piece.tool_call_chunks) for piece in pieces) == 2
    whole = pieces[0]
    for piece in pieces[1:]:
        whole += piece
    assert isinstance(whole, AIMessageChunk)
    assert whole.tool_calls[0]["args"]["path"] == "file.txt"
    assert [piece.content for piece in _model(chunk_characters=4).stream(_conversation())] == [
        p.content for p in pieces
    ]


async def test_a_held_call_waits_for_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HELD", str(tmp_path))
    hold = {"until_file": "$HELD/go", "announce_file": "$HELD/open", "timeout_seconds": 20}
    model = ScriptedChatModel(script=[{"text": "held", "hold": hold}])
    call = asyncio.create_task(model.ainvoke([HumanMessage("x")]))
    while not (tmp_path / "open").exists():
        await asyncio.sleep(0.005)
        assert not call.done()
    (tmp_path / "go").touch()
    assert (await call).text == "held"
    never = ScriptedChatModel(script=[{"hold": {"until_file": str(tmp_path / "never"), "timeout_seconds": 0}}])
    with pytest.raises(ScriptError, match="nobody made"):
        never.invoke([HumanMessage("x")])


@pytest.mark.parametrize("template", ["{{tool.absent}}", "{{tool.count.absent}}", "{{tool}}", "{{nothing}}"])
def test_a_template_that_names_nothing_fails_by_name(template: str) -> None:
    model = ScriptedChatModel(script=[{"text": "1"}, {"text": template}])
    result = ToolMessage('{"words": 1}', name="count", tool_call_id="c")
    with pytest.raises(ScriptError):
        model.invoke([HumanMessage("x"), AIMessage("1"), result])


def test_a_step_may_fail() -> None:
    with pytest.raises(ScriptError, match="out of luck"):
        ScriptedChatModel(script=[{"error": "out of luck"}]).invoke([HumanMessage("x")])
