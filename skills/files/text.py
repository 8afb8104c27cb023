"""Bytes to text and back, so that an edit keeps encoding, byte order mark and line endings."""

import codecs
from dataclasses import dataclass

from runner import ToolError

_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)


@dataclass(frozen=True)
class Text:
    """A file's text, and what it takes to write it back the same way."""

    content: str
    encoding: str
    mark: bytes

    @property
    def newline(self) -> str:
        """The line ending most lines have."""
        windows = self.content.count("\r\n")
        return "\r\n" if windows > self.content.count("\n") - windows else "\n"

    def encoded(self, content: str) -> bytes:
        """Other content as bytes of the same encoding."""
        return self.mark + content.encode(self.encoding)


def decoded(path: str, data: bytes) -> Text:
    """The text of a file; `ToolError` when it is binary."""
    for mark, encoding in _MARKS:
        if data.startswith(mark):
            return Text(_decode(path, data[len(mark) :], encoding), encoding, mark)
    if is_binary(data):
        raise ToolError(f"{path} is a binary file of {len(data):,} bytes; it has no text to show")
    try:
        return Text(data.decode(), "utf-8", b"")
    except UnicodeDecodeError:
        return Text(data.decode("latin-1"), "latin-1", b"")


def is_binary(data: bytes) -> bool:
    """True when the beginning holds a zero byte, which no 8-bit text has."""
    return b"\0" in data[:8192]


def lines_of(content: str) -> list[str]:
    """The lines without their endings; only line feeds end one, as in editors."""
    lines = content.replace("\r\n", "\n").split("\n")
    return lines[:-1] if lines[-1] == "" else lines


def _decode(path: str, data: bytes, encoding: str) -> str:
    try:
        return data.decode(encoding)
    except UnicodeDecodeError as error:
        raise ToolError(f"{path} begins like {encoding} text but is not: {error}") from error
