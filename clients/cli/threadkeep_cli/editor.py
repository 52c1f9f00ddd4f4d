"""Gives a text to the editor that people chose."""

from __future__ import annotations

import os
import shlex
import subprocess
import tempfile
from pathlib import Path

from threadkeep_cli.exits import UsageProblem


def edit_text(text: str, name: str) -> tuple[str, Path]:
    """The text as it comes back from $VISUAL or $EDITOR, and the file that holds it. Raises UsageProblem."""
    command = shlex.split(os.environ.get("VISUAL") or os.environ.get("EDITOR") or "vi")
    safe = "".join(one if one.isalnum() or one in "-_." else "_" for one in name)
    path = Path(tempfile.mkdtemp(prefix="threadkeep-")) / safe[-100:]
    path.write_text(text, encoding="utf-8")
    try:
        code = subprocess.run([*command, str(path)], check=False).returncode
    except OSError as error:
        raise UsageProblem(f"{command[0]} can't be started: {error.strerror}; set EDITOR") from error
    if code != 0:
        raise UsageProblem(f"{command[0]} ended with {code}; nothing was put")
    return path.read_text(encoding="utf-8"), path
