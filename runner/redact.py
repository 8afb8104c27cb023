"""Mask secrets before anything forks: model, terminal, log and disk.

Three kinds are known: values of secret environment variables, token shapes of well-known services,
and values that stand beside a name such as `api_key=` or `password:`. A secret that was encoded
(base64, encrypted, spelt out) is not recognised. Every step is linear in the text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Any
from urllib.parse import quote

from .errors import PluginError
from .jsontext import encode

_MIN_CHARS = 8
_MIN_LINE_CHARS = 20
_MAX_DEPTH = 200
_PEM_CHARS = 20_000
_HOLD_CHARS = 65_536


class Redactor:
    """Masks secrets in texts and values. Immutable once built, used from any thread."""

    def __init__(
        self,
        environ: Mapping[str, str],
        api_key_envs: Collection[str] = (),
        patterns: Iterable[str] = (),
    ) -> None:
        self._values = _env_values(environ, api_key_envs)
        self._patterns = [_compiled(pattern) for pattern in patterns]

    def text(self, text: str) -> str:
        """The text with every known secret replaced by `[REDACTED:kind]`."""
        if len(text) < _MIN_CHARS:
            return text
        for value, mask in self._values:
            if value in text:
                text = text.replace(value, mask)
        if "-----BEGIN " in text:
            text = _without_pem(text)
        if _may_hold_token(text):
            text = _without_tokens(text)
        if "://" in text and "@" in text:
            text = _USERINFO.sub(_without_password, text)
        if ":" in text or "=" in text or " " in text:
            text = _without_named(text)
        for pattern in self._patterns:
            text = pattern.sub("[REDACTED:pattern]", text)
        return text

    def value(self, value: Any) -> Any:
        """The JSON value with every text in it masked; what has no secret is shared, not copied."""
        if not value or (type(value) in {dict, list} and self._is_clean(value)):
            return value
        return self._value(value, 0)

    def _is_clean(self, value: Any) -> bool:
        """True when nothing in the value could be a secret: a quick look that errs on the careful side."""
        try:
            text = encode(value)
        except (ValueError, TypeError, RecursionError):
            return False
        if self._patterns or "-----BEGIN " in text or "://" in text or _may_hold_token(text):
            return False
        if self._values and any(value in text for value, _ in self._values):
            return False
        return not any(map(_lowered(text).__contains__, _ALL_HINTS))

    def stream(self) -> Stream:
        """For text that comes in pieces: a secret split over two of them never shows."""
        return Stream(self, [value for value, _ in self._values if any(map(str.isspace, value))])

    def _value(self, value: Any, depth: int) -> Any:
        if type(value) is str:
            return self.text(value)
        if not isinstance(value, dict | list | tuple):
            return value
        if depth > _MAX_DEPTH:
            return "[nested too deeply]"
        if isinstance(value, dict):
            return self._dict(value, depth)
        parts = [self._value(part, depth + 1) for part in value]
        if all(new is old for new, old in zip(parts, value, strict=True)):
            return value
        return parts if isinstance(value, list) else tuple(parts)

    def _dict(self, value: Mapping[Any, Any], depth: int) -> Mapping[Any, Any]:
        masked = {}
        same = True
        for key, part in value.items():
            name = self.text(key) if type(key) is str else key
            new = self._value(part, depth + 1)
            if new is part and type(part) is str and type(key) is str and _names_secret(key, part):
                new = "[REDACTED:named]"
            same = same and new is part and name is key
            masked[name] = new
        return value if same else masked


class Stream:
    """Redacts a growing text: gives out what is settled and holds back what may be a secret."""

    def __init__(self, redactor: Redactor, spaced: list[str]) -> None:
        self._redactor = redactor
        self._spaced = spaced
        self._held = ""

    def feed(self, chunk: str) -> str:
        """What can be shown after this piece; perhaps nothing yet."""
        text = self._held + chunk
        cut = len(text) if len(text) > _HOLD_CHARS else self._settled(text)
        self._held = text[cut:]
        return self._redactor.text(text[:cut])

    def end(self) -> str:
        """The rest."""
        rest, self._held = self._held, ""
        return self._redactor.text(rest)

    def _settled(self, text: str) -> int:
        """Where the text may be cut: before its last word and whatever that word belongs to."""
        cut = 1 + max(map(text.rfind, " \n\t\r"))
        opened = _OPEN_NAME.search(text, max(0, cut - _OPEN_CHARS))
        if opened is not None:
            cut = min(cut, _word_start(text, opened.start()))
        begun = text.rfind("-----BEGIN ")
        if begun >= 0:
            end = _PEM_END.search(text, begun)
            cut = min(cut, begun) if end is None or end.end() > cut else cut
        for value in self._spaced:
            cut = min(cut, len(text) - _overlap(text, value))
            inside = text.find(value, max(0, cut - len(value) + 1))
            cut = min(cut, inside) if inside >= 0 else cut
        return cut


def _env_values(environ: Mapping[str, str], api_key_envs: Collection[str]) -> list[tuple[str, str]]:
    """Secret values and their masks, in every form they may be printed in, longest first."""
    found: dict[str, str] = {}
    for name, value in environ.items():
        if name not in api_key_envs and not _says_secret(name, value):
            continue
        mask = f"[REDACTED:{name}]"
        lines = [line for line in value.splitlines() if len(line) >= _MIN_LINE_CHARS]
        for text in (value, value.strip(), *(lines if len(lines) > 1 else ())):
            if len(text) >= _MIN_CHARS and not _is_plain(text):
                forms = (text, json.dumps(text)[1:-1], json.dumps(text, ensure_ascii=False)[1:-1])
                found.update(dict.fromkeys([*forms, repr(text)[1:-1], quote(text, safe="")], mask))
    return sorted(found.items(), key=lambda pair: -len(pair[0]))


def _says_secret(name: str, value: str) -> bool:
    if name in {"PWD", "OLDPWD"}:  # the shell's working directory, not a password
        return False
    parts = [part.lower() for part in re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name)]
    if parts and parts[-1] in ("file", "path", "dir") and value[:1] in ("/", "~", "."):
        return False
    return any(part.endswith(_SECRET_WORDS) for part in parts)


_SECRET_WORDS = (
    *("key", "keys", "token", "tokens", "secret", "secrets", "passwd", "pwd"),
    *("password", "passwords", "passphrase", "credential", "credentials"),
)
_WORDS = re.compile(
    r"(?:[A-Z]?[a-z]{1,20}|[A-Z]{1,20})(?:[ _./:-]{1,3}(?:[A-Z]?[a-z]{1,20}|[A-Z]{1,20}))*"
)
_DIGITS = re.compile(r"[\d.,:_+-]+")


def _is_plain(text: str) -> bool:
    """Ordinary words, or a number: masking those would spoil texts that happen to have them."""
    return bool(_WORDS.fullmatch(text) or _DIGITS.fullmatch(text))


# ---- shapes of tokens

_RUN = b"a" * 16
_AS_RUNS = bytes(
    ord("a") if chr(c).isascii() and (chr(c).isalnum() or chr(c) in "_-") else ord(" ")
    for c in range(256)
)


def _may_hold_token(text: str) -> bool:
    """Every token has a digit and a run of 16 letters, digits, `_` and `-`: most texts have none.

    Two passes in C, 5 µs for 4 kB, where looking for each beginning takes 100.
    """
    data = text.encode("utf-8", "replace")
    has_digit = len(data.translate(None, b"0123456789")) < len(data)
    return has_digit and _RUN in data.translate(_AS_RUNS)


def _without_tokens(text: str) -> str:
    for literal, shape, masked in _SHAPES:
        if literal in text:
            text = shape.sub(masked, text)
    return text


def _shape(literal: str, kind: str, pattern: str) -> _Shape:
    """A token begins where no letter or digit stands before it, or after an escaped newline."""

    def masked(found: re.Match[str]) -> str:  # `sk-learn-and-other-words` has no digit
        return f"[REDACTED:{kind}]" if any(map(str.isdigit, found[0])) else found[0]

    return literal, re.compile(rf"(?:(?<![A-Za-z0-9])|(?<=\\[nrt])){pattern}"), masked


_Shape = tuple[str, re.Pattern[str], Callable[[re.Match[str]], str]]
_SHAPES = (
    _shape("sk-ant-", "anthropic-key", r"sk-ant-[A-Za-z0-9_-]{16,}"),
    _shape("sk-", "openai-key", r"sk-[A-Za-z0-9_-]{20,}"),
    _shape("gsk_", "groq-key", r"gsk_[A-Za-z0-9]{30,}"),
    _shape("xai-", "xai-key", r"xai-[A-Za-z0-9_-]{30,}"),
    _shape("hf_", "huggingface-token", r"hf_[A-Za-z0-9]{30,}"),
    _shape("_pat_", "github-token", r"github_pat_[A-Za-z0-9_]{22,}"),
    *(_shape(f"gh{x}_", "github-token", rf"gh{x}_[A-Za-z0-9]{{30,}}") for x in "pousr"),
    *(
        _shape(f"gl{x}-", "gitlab-token", rf"gl{x}-[A-Za-z0-9_-]{{20,}}")
        for x in ("pat", "ptt", "dt", "rt", "cbt", "soat", "agent")
    ),
    _shape("KIA", "aws-key", r"AKIA[A-Z0-9]{16}(?![A-Za-z0-9+/])"),
    _shape("SIA", "aws-key", r"ASIA[A-Z0-9]{16}(?![A-Za-z0-9+/])"),
    _shape("AIza", "google-key", r"AIza[A-Za-z0-9_-]{35}(?![A-Za-z0-9_-])"),
    _shape("ya29.", "google-token", r"ya29\.[A-Za-z0-9_-]{20,}"),
    _shape("GOCSPX-", "google-secret", r"GOCSPX-[A-Za-z0-9_-]{20,}"),
    _shape("xox", "slack-token", r"xox[abeoprs]-[A-Za-z0-9-]{10,}"),
    _shape("xapp-", "slack-token", r"xapp-[A-Za-z0-9-]{20,}"),
    _shape("hooks.slack", "slack-webhook", r"hooks\.slack\.com/services/[A-Za-z0-9/]{20,}"),
    _shape("_live_", "stripe-key", r"[rsp]k_live_[A-Za-z0-9]{16,}"),
    _shape("_test_", "stripe-key", r"[rsp]k_test_[A-Za-z0-9]{16,}"),
    _shape("whsec_", "stripe-secret", r"whsec_[A-Za-z0-9+/=]{20,}"),
    _shape("npm_", "npm-token", r"npm_[A-Za-z0-9]{36}"),
    _shape("pypi-", "pypi-token", r"pypi-[A-Za-z0-9_-]{50,}"),
    _shape("dop_v1_", "digitalocean-token", r"dop_v1_[0-9a-f]{40,}"),
    _shape("dapi", "databricks-token", r"dapi[0-9a-f]{32}"),
    _shape("shp", "shopify-token", r"shp(?:at|ca|pa|ss)_[0-9a-fA-F]{32}"),
    _shape("hvs.", "vault-token", r"hvs\.[A-Za-z0-9_-]{20,}"),
    _shape(
        "SG.", "sendgrid-key", r"(?<![A-Za-z0-9_-])SG\.[A-Za-z0-9_-]{16,64}\.[A-Za-z0-9_-]{20,}"
    ),
    _shape("AGE-SECRET", "age-key", r"AGE-SECRET-KEY-1[A-Z0-9]{50,}"),
    _shape(
        "eyJ",
        "jwt",
        r"(?<![A-Za-z0-9_-])eyJ[A-Za-z0-9_-]{8,}+\.eyJ[A-Za-z0-9_-]{4,}+\.[A-Za-z0-9_-]*",
    ),
)


# ---- private keys

_PEM_END = re.compile(r"-----END [A-Z0-9 ]{0,40}-----")
_PEM_BODY = re.compile(r"[A-Za-z0-9+/=\s\\]*+")


def _without_pem(text: str) -> str:
    """Line scan, not one pattern: a naive one takes 10 s for 1 MB of headers."""
    parts = []
    done = 0
    while (begin := text.find("-----BEGIN ", done)) >= 0:
        header = text.find("-----", begin + 11, begin + 80)
        if header < 0 or "PRIVATE KEY" not in text[begin:header]:
            parts.append(text[done : begin + 11])
            done = begin + 11
            continue
        parts += [text[done:begin], "[REDACTED:private-key]"]
        done = _pem_end(text, header + 5)
    return "".join([*parts, text[done:]])


def _pem_end(text: str, body: int) -> int:
    """After the end marker, or after what looks like the key when that is missing."""
    other = text.find("-----BEGIN ", body, body + _PEM_CHARS)
    end = _PEM_END.search(text, body, other if other >= 0 else body + _PEM_CHARS)
    if end is not None:
        return end.end()
    return _PEM_BODY.match(text, body).end()  # type: ignore[union-attr]


# ---- passwords in addresses, and values beside their names

_USERINFO = re.compile(r"(?<=://)([^\s/@:\"'<>\[]{0,256}:)([^\s/\"'<>]{1,256})@")
_NAME = (
    r"(?:api[_-]?key|access[_-]?key|account[_-]?key|auth[_-]?key|private[_-]?key|secret|passwd"
    r"|password|passphrase|credential|token)"
)
_GAP = r"[^\S\n]{0,3}"
_NAMED = re.compile(  # the value may stand indented in the next line; a line of its own is none
    rf"({_NAME}([A-Za-z0-9_-]{{0,24}})(?:\\?[\"'])?{_GAP}(?:=>|:=|[:=]){_GAP}"
    rf"(?:\n[^\S\n]{{1,4}})?(?:\\?[\"'])?)"
    r"([^\s\"',;&<>()\[\]{}\\]{8,})",
    re.IGNORECASE,
)
_HEADER = re.compile(
    r"((?:bearer|basic|authorization:?\s{0,3}token)\s{1,3})([A-Za-z0-9._~+/=-]{12,})", re.IGNORECASE
)
_HARMLESS_ENDING = re.compile(
    r"(?:file|path|url|uri|ids?|name|count|type|limit|budget|env|at|in|expiry|expires|size|len"
    r"|length|estimate|usage)s?",
    re.IGNORECASE,
)
_HARMLESS_START = re.compile(r"(?:page|next|cursor|continuation|sync|csrf)[_-]?$", re.IGNORECASE)
_IDENTIFIER = re.compile(r"[A-Za-z_.-]+\d?")
_PLACEHOLDER = re.compile(
    r"[$%/~.]|x{4}|\*{3}|your|example|change|test[_-]?key|\.\.\.", re.IGNORECASE
)
_OPEN_CHARS = 160
_OPEN_NAME = re.compile(
    rf"(?:{_NAME}[A-Za-z0-9_-]{{0,24}}|bearer|basic|authorization:?)"
    rf"\\?[\"']?{_GAP}(?:=>|:=|[:=])?{_GAP}(?:\n[^\S\n]{{0,4}})?(?:token\s{{0,3}})?\S*\Z",
    re.IGNORECASE,
)
_ALL_HINTS = ("key", "secret", "pass", "credential", "token", "bearer", "auth", "basic")
_HINTS = ("key", "secret", "passw", "passphrase", "credential", "token")


def _lowered(text: str) -> str:
    """In lower case, with the letters that a pattern takes for `s` and `i` when it ignores case."""
    lowered = text.lower()
    if lowered.isascii():
        return lowered
    return lowered.replace("\u017f", "s").replace("\u0131", "i").replace("i\u0307", "i")


def _without_named(text: str) -> str:
    lowered = _lowered(text)
    if any(map(lowered.__contains__, _HINTS)):
        text = _NAMED.sub(_without_value, text)
    if "bearer" in lowered or "authorization" in lowered or "basic " in lowered:
        text = _HEADER.sub(_without_credential, text)
    return text


def _without_password(found: re.Match[str]) -> str:
    if found[2].startswith(("$", "{", "*", "[REDACTED")):
        return found[0]
    return f"{found[1]}[REDACTED:url-password]@"


def _without_value(found: re.Match[str]) -> str:
    before = found.string[max(0, found.start() - 16) : found.start()]
    after = found.string[found.end() : found.end() + 1]
    if after in ("(", "[") or not _is_secret(before, found[2], found[3]):
        return found[0]
    return f"{found[1]}[REDACTED:named]"


def _without_credential(found: re.Match[str]) -> str:
    return f"{found[1]}[REDACTED:authorization]" if _is_random(found[2]) else found[0]


def _names_secret(key: str, value: str) -> bool:
    """Is a field of this name and value a secret? `{"password": …}` is, `{"page_token": …}` not."""
    named = re.search(_NAME, key, re.IGNORECASE)
    if named is None or len(value) < _MIN_CHARS or any(map(str.isspace, value)):
        return False
    return _is_secret(key[: named.start()], key[named.end() :], value)


def _is_secret(before: str, ending: str, value: str) -> bool:
    if _HARMLESS_ENDING.fullmatch(ending.strip("_-")) or _HARMLESS_START.search(before):
        return False
    return _is_random(value)


def _is_random(value: str) -> bool:
    """Letters and digits mixed, and no placeholder, path or name of a variable."""
    if _PLACEHOLDER.match(value) or _IDENTIFIER.fullmatch(value) or "[REDACTED" in value:
        return False
    return any(map(str.isdigit, value)) and any(map(str.isalpha, value)) and "://" not in value


def _word_start(text: str, at: int) -> int:
    while at > 0 and not text[at - 1].isspace():
        at -= 1
    return at


def _overlap(text: str, value: str) -> int:
    """How much of the value's beginning stands at the end of the text."""
    longest = min(len(text), len(value) - 1)
    return next((n for n in range(longest, 0, -1) if text.endswith(value[:n])), 0)


def _compiled(pattern: str) -> re.Pattern[str]:
    try:
        return re.compile(pattern)
    except re.error as error:
        raise PluginError(
            f"secret pattern {pattern!r} is not a regular expression: {error}"
        ) from error
