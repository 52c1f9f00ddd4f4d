"""Variables in definitions: `${NAME}` and `${NAME:-default}`. They are stored as they are; workers fill in values (C8).

Here is only what they look like, and what a text might be once they are filled in, so that it can be checked.
"""

from __future__ import annotations

import re

_VARIABLE = re.compile(r"\$(?:\$\{|\{(?P<name>[A-Za-z_][A-Za-z0-9_]{0,254})(?::-(?P<default>[^}]*))?\}|(?P<bad>\{))")

SAMPLE = "x"


def fault(text: str) -> str | None:
    """What is wrong with the variables of a text, or None."""
    if any(found["bad"] for found in _VARIABLE.finditer(text)):
        return "holds ${ that begins no ${NAME} or ${NAME:-default}; write $${ for the characters themselves"
    return None


def sample(text: str) -> str:
    """The text as it might be on a worker: defaults where there are some."""

    def filled(found: re.Match[str]) -> str:
        if found["name"] is None:
            return "${"
        return found["default"] if found["default"] is not None else SAMPLE

    return _VARIABLE.sub(filled, text)


def sample_url(url: str) -> str:
    """The same of a URL, of which a variable without a default may be the beginning."""
    found = _VARIABLE.match(url)
    if found is not None and found["name"] is not None and found["default"] is None:
        url = f"http://{SAMPLE}{url[found.end() :]}"
    return sample(url)
