"""Skills with progressive disclosure: the model sees names and descriptions, and reads the rest when it needs it."""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import Any

from langchain_core.tools import BaseTool, StructuredTool, ToolException

TOOL_NAME = "read_skill"
SKILL_FILE = "SKILL.md"

_INTRODUCTION = (
    "You have skills: instructions for certain kinds of work. Before you begin work that one of them is for, read it "
    f"with the tool {TOOL_NAME}, and then the files that it refers to, as you need them."
)


def skills_prompt(skills: Sequence[Mapping[str, Any]]) -> str:
    """What the system prompt says of the skills; each is a manifest's part."""
    lines = [f"- {one['name']}: {_body(one).get('description', '')}" for one in skills]
    return "\n".join([_INTRODUCTION, "", *lines])


def skills_tool(skills: Sequence[Mapping[str, Any]]) -> BaseTool:
    """The tool that reads them."""
    known = {one["name"]: _body(one) for one in skills}

    def read_skill(name: str, path: str = SKILL_FILE) -> str:
        if name not in known:
            raise ToolException(f"there is no skill {name!r}; there are {', '.join(known)}")
        if path == SKILL_FILE:
            return _instructions(known[name])
        files = {one["path"]: one.get("content", "") for one in known[name].get("files", ())}
        if path not in files:
            raise ToolException(f"the skill {name!r} has no file {path!r}; it has {', '.join(files) or 'none'}")
        content = base64.b64decode(files[path])
        try:
            return content.decode()
        except UnicodeDecodeError:
            return f"[{len(content)} bytes that are no text, as base64]\n{files[path]}"

    schema = {
        "type": "object",
        "properties": {
            "name": {"type": "string", "enum": list(known)},
            "path": {"type": "string", "description": f"A file of the skill. Without it: {SKILL_FILE}."},
        },
        "required": ["name"],
    }
    return StructuredTool.from_function(
        read_skill,
        name=TOOL_NAME,
        description="Reads a skill, or a file of it.",
        args_schema=schema,
        handle_tool_error=True,
    )


def _instructions(skill: Mapping[str, Any]) -> str:
    parts = [skill.get("instructions", "")]
    if skill.get("compatibility"):
        parts.append(f"It needs: {skill['compatibility']}")
    if skill.get("allowed_tools"):
        parts.append(f"It uses the tools: {', '.join(skill['allowed_tools'])}")
    if skill.get("files"):
        parts.append("Its files:\n" + "\n".join(f"- {one['path']}" for one in skill["files"]))
    return "\n\n".join(part for part in parts if part)


def _body(part: Mapping[str, Any]) -> Mapping[str, Any]:
    body: Mapping[str, Any] = part["definition"]["skill"]
    return body
