"""A real MCP server for tests, over stdio: `python -m tests.support.mcp_files`."""

import os

from mcp.server.fastmcp import FastMCP

server = FastMCP("files", host="127.0.0.1", port=0)


@server.tool()
def read(path: str) -> str:
    """Reads a file."""
    return f"content of {path}"


@server.tool()
def environment(name: str) -> str:
    """Reads a variable of the server's environment."""
    return os.environ.get(name, "nothing")


@server.tool()
def fails(text: str) -> str:
    """Fails."""
    raise ValueError(text)


if __name__ == "__main__":
    server.run()
