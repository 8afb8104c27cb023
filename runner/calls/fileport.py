"""Answer a worker's questions about files: the runner holds the locks and knows what was read."""

from __future__ import annotations

import os
from base64 import b64decode, b64encode

from ..skill import Files, ToolError
from ..types import JSON, Tool
from .crossing import describe
from .frames import FrameTooLarge, pack


def answer(files: Files, message: JSON, tool: Tool, *, strict: bool) -> bytes:
    """The frame with the answer; blocking. What goes wrong is in it, never raised."""
    try:
        return pack({"value": _asked(files, message, tool, strict=strict)})
    except FrameTooLarge as error:
        fault = ToolError(f"the file is too large to be handed to an isolated tool: {error}")
        return pack({"error": describe(fault)})
    except Exception as error:  # noqa: BLE001 - a worker may ask anything; the fault is its answer
        return pack({"error": describe(error)})


def _asked(files: Files, message: JSON, tool: Tool, *, strict: bool) -> str | None:
    name = str(message["name"])
    match message["what"]:
        case "path":
            return os.fspath(files.path(name, write=bool(message.get("write"))))
        case "read":
            if strict and not _may_read(tool):
                raise ToolError(
                    f"{tool.name} may not read files: its manifest does not ask for fs.read"
                )
            return b64encode(files.read(name)).decode("ascii")
        case "write":
            files.write(name, b64decode(message["data"]))
            return None
        case "stale":
            return files.stale(name)
        case what:
            raise ToolError(f"no such question about files: {what!r}")


def _may_read(tool: Tool) -> bool:
    return any(need.startswith(("fs.read", "fs.write")) for need in tool.flags.permissions)
