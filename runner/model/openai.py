"""Messages and tools as the OpenAI protocol has them."""

from __future__ import annotations

import json

from ..types import JSON, Message
from .base import ToolSpec


def openai_message(message: Message) -> JSON:
    """One message; the content is always a string, arguments are always a JSON object as text."""
    sent: JSON = {"role": message.role, "content": message.content}
    if message.tool_calls:
        sent["tool_calls"] = [
            {
                "id": call.id,
                "type": "function",
                "function": {
                    "name": call.name,
                    "arguments": json.dumps(call.arguments, ensure_ascii=False),
                },
            }
            for call in message.tool_calls
        ]
    if message.role == "tool":
        sent["tool_call_id"] = message.tool_call_id or ""
    return sent


def openai_tool(tool: ToolSpec) -> JSON:
    """One offered tool; Ollama takes the same form."""
    function = {"name": tool.name, "description": tool.description, "parameters": tool.parameters}
    return {"type": "function", "function": function}


def response_format(schema: JSON) -> JSON:
    """The wish that the reply be JSON of that schema."""
    return {"type": "json_schema", "json_schema": {"name": "reply", "schema": schema}}
