"""Turn what a server sent into text a model can read."""

import json
import re
from email.message import Message
from html.parser import HTMLParser

_BLOCKS = (
    "address article aside blockquote br dd div dl dt fieldset figcaption figure footer form h1 h2 "
    "h3 h4 h5 h6 header hr li main nav ol p pre section table title tr ul"
)
_SILENT = frozenset({"script", "style", "noscript", "template", "svg", "iframe", "object"})
_TEXTUAL = re.compile(
    r"text/|application/(?:.+\+)?(?:json|xml|javascript|ecmascript|yaml|x-yaml|toml|x-sh)"
)
_META_CHARSET = re.compile(rb"<meta[^>]+charset=[\"']?([\w-]+)", re.IGNORECASE)


def readable(data: bytes, headers: Message) -> str:
    """The body as text: HTML without its markup; binary content described."""
    kind = headers.get_content_type() if headers.get("content-type") else _guess(data)
    coded = headers.get("content-encoding", "identity").lower()
    if coded != "identity" or not _TEXTUAL.match(kind):
        return f"[binary content: {kind}, {len(data):,} bytes, encoding {coded}]"
    text = _decoded(data, headers.get_content_charset() or "")
    if kind in {"text/html", "application/xhtml+xml"}:
        return html_text(text)
    return text.strip()


def html_text(html: str) -> str:
    """What a reader would see of a page, one block a line."""
    parser = _Text()
    parser.feed(html)
    parser.close()
    lines = (" ".join(line.split()) for line in "".join(parser.parts).splitlines())
    return re.sub(r"\n{3,}", "\n\n", "\n".join(lines)).strip()


class _Text(HTMLParser):
    """Collects the text outside scripts, styles and the like."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.parts: list[str] = []
        self._silent: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _SILENT:
            self._silent.append(tag)
        elif tag in {"td", "th"}:
            self.parts.append(" | ")
        elif tag in _BLOCKS.split():
            self.parts.append("\n- " if tag == "li" else "\n")

    def handle_endtag(self, tag: str) -> None:
        if tag in self._silent:
            del self._silent[self._silent.index(tag) :]
        elif tag in _BLOCKS.split():
            self.parts.append("\n")

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        if tag in _BLOCKS.split():
            self.parts.append("\n")

    def handle_data(self, data: str) -> None:
        if not self._silent:
            self.parts.append(data)


def _guess(data: bytes) -> str:
    if b"\0" in data[:8192]:
        return "application/octet-stream"
    head = data[:512].lstrip().lower()
    if head.startswith((b"<!doctype html", b"<html")):
        return "text/html"
    try:
        json.loads(data)
    except ValueError:
        return "text/plain"
    return "application/json"


def _decoded(data: bytes, charset: str) -> str:
    if not charset and (found := _META_CHARSET.search(data[:2048])):
        charset = found[1].decode()
    try:
        return data.decode(charset or "utf-8-sig", "replace")
    except LookupError:
        return data.decode("utf-8-sig", "replace")
