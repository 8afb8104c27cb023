"""Reply → tool calls: `read` says whether a model's text is a call, an answer or a fault."""

from __future__ import annotations

from .names import resolve_name
from .nouns import Answer, Fault, Found, Parsed, ParsedCall, RawCall, Recogniser, Source
from .reader import read
from .strict import read_arguments
from .table import RECOGNISERS

__all__ = [
    "RECOGNISERS",
    "Answer",
    "Fault",
    "Found",
    "Parsed",
    "ParsedCall",
    "RawCall",
    "Recogniser",
    "Source",
    "read",
    "read_arguments",
    "resolve_name",
]
