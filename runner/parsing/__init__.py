"""Reply → tool calls."""
