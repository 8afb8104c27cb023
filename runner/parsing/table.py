"""The table of recognisers: what marks a dialect, and what reads it."""

from __future__ import annotations

import re

from . import blocks, gemma, harmony, pythoncall, react, xmlcalls
from .marked import Named, Wrapped
from .nouns import Reading, Recogniser, Source
from .pattern import pattern

_B, _U = "[|｜]", "[_▁]"
_SEP = rf"<{_B}tool{_U}sep{_B}>"

_HERMES = Wrapped(pattern(r"<tool_call>"), pattern(r"</tool_call>"))
_TAGS = Wrapped(
    pattern(
        r"<(?:tool_calls|function_calls?|TOOLCALL|tool_use|tool|functioncall)>|<\|tool_call\|>"
    ),
    pattern(
        r"</(?:tool_calls|function_calls?|TOOLCALL|tool_use|tool|functioncall)>|<\|/tool_call\|>|<\|end_tool_call\|>"
    ),
)
_LLAMA = Wrapped(pattern(r"<\|python_tag\|>"), pattern(r"<\|e[om][tm]_id\|>"))
_ACTIONS = Wrapped(
    pattern(
        r"<\|START_ACTION\|>|<\|action_start\|>\s*<\|(?:plugin|interpreter)\|>|<\|tool_call_start\|>|<\|tools_prefix\|>"
    ),
    pattern(r"<\|END_ACTION\|>|<\|action_end\|>|<\|tool_call_end\|>|<\|tools_suffix\|>"),
)
_PHI = Wrapped(pattern(r"functools(?=\[)"), pattern(r"(?!)"))
_MISTRAL_LIST = Wrapped(pattern(r"\[TOOL_CALLS\]"), pattern(r"\[/TOOL_CALLS\]"))
_MISTRAL_NAMED = Named(
    pattern(r"\[TOOL_CALLS\]\s*(?P<name>[\w.-]+)\s*(?:\[CALL_ID\]\s*\w+\s*)?(?:\[ARGS\]\s*)?"),
    pattern(r""),
)
_DEEPSEEK = Named(
    pattern(
        rf"(?:<{_B}tool{_U}calls{_U}begin{_B}>\s*)?<{_B}tool{_U}call{_U}begin{_B}>\s*(?:function\s*{_SEP})?\s*"
        rf"(?P<name>[\w.:-]+)\s*(?:{_SEP})?\s*(?:```(?:json)?\s*)?"
    ),
    pattern(
        rf"(?:\s*```)?(?:\s*<{_B}tool{_U}call{_U}end{_B}>)?(?:\s*<{_B}tool{_U}calls{_U}end{_B}>)?"
    ),
)
_KIMI = Named(
    pattern(
        r"(?:<\|tool_calls_section_begin\|>\s*)?(?:<\|tool_call_begin\|>)?\s*(?P<name>[\w.-]+)(?::\d+)?\s*<\|tool_call_argument_begin\|>\s*"
    ),
    pattern(r"(?:\s*<\|tool_call_end\|>)?(?:\s*<\|tool_calls_section_end\|>)?"),
)
_QWEN_AGENT = Named(
    pattern(r"✿FUNCTION✿\s*[:：]\s*(?P<name>[\w.-]+)\s*✿ARGS✿\s*[:：]\s*"),
    pattern(r"(?:\s*✿(?:RESULT|RETURN)✿.*)?", re.DOTALL),
)
_FUNCTIONARY = Named(pattern(r">>>\s*(?P<name>[\w.-]+)\s*\n\s*"), pattern(r""), optional=True)
_BRACKETED = Named(
    pattern(r"\[tool:\s*(?P<name>[\w.-]+)\]\s*"),
    pattern(r"(?:\s*\[/(?:tool:)?\s*[\w.-]*\])?"),
)


def _mistral(source: Source, position: int) -> Reading:
    after = source.text[position + len("[TOOL_CALLS]") :].lstrip()[:1]
    return (_MISTRAL_LIST if after in {"[", "{", ""} else _MISTRAL_NAMED).parse(source, position)


def _tool_call(source: Source, position: int) -> Reading:
    """`<tool_call>` opens four dialects; what follows it tells them apart."""
    at = position
    opener = re.compile(r"\s*(?:<tool_call>\s*)+")
    match = opener.match(source.text, position)
    at = match.end() if match else position
    following = source.text[at : at + 1]
    if following == "<" and not source.text.startswith("</tool_call>", at):
        return xmlcalls.FUNCTION.parse(source, position) or _HERMES.parse(source, position)
    if following not in {"{", "[", "<", ""}:
        last = source.text.rfind("<tool_call>", position, at)
        reading = xmlcalls.GLM.parse(source, last)
        return reading or pythoncall.parse_tagged(source, last) or _HERMES.parse(source, position)
    return pythoncall.parse_tagged(source, position) or _HERMES.parse(source, position)


def _tags(source: Source, position: int) -> Reading:
    match = re.compile(r"<[^>]*>\s*").match(source.text, position)
    after = source.text[match.end() : match.end() + 1] if match else ""
    if after == "<":
        return xmlcalls.FUNCTION.parse(source, position)
    return pythoncall.parse_tagged(source, position) or _TAGS.parse(source, position)


def _actions(source: Source, position: int) -> Reading:
    return pythoncall.parse_tagged(source, position) or _ACTIONS.parse(source, position)


def _pipes(source: Source, position: int) -> Reading:
    return pythoncall.parse_tagged(source, position) or _LLAMA.parse(source, position)


def _deepseek(source: Source, position: int) -> Reading:
    """Kimi and DeepSeek share an opener; Step puts tags inside it."""
    if "<steptml:" in source.text[position : position + 200]:
        return xmlcalls.FUNCTION.parse(source, position)
    if "tool_call_argument_begin" in source.text or "tool_calls_section" in source.text:
        return _KIMI.parse(source, position)
    return _DEEPSEEK.parse(source, position)


def _leaked(source: Source, position: int) -> Reading:
    if not re.compile(r"functions\.[\w-]+:\d+\s*<\|tool_call_argument").match(
        source.text, position
    ):
        return None
    return _KIMI.parse(source, position)


def _bare_gemma(source: Source, position: int) -> Reading:
    return None if source.text[:position].strip() else gemma.parse(source, position)


RECOGNISERS: list[Recogniser] = [
    Recogniser("hermes", ("<tool_call>",), _tool_call),
    Recogniser(
        "tags",
        (
            "<tool_calls>",
            "<function_calls>",
            "<function_call>",
            "<TOOLCALL>",
            "<tool_use>",
            "<tool>",
            "<functioncall>",
            "<|tool_call|>",
            "<minimax:tool_call>",
            "<｜DSML｜",
        ),
        _tags,
    ),
    Recogniser(
        "function",
        (
            "<function=",
            "<function name",
            "<invoke ",
            "<steptml:invoke",
            "<invoke",
            "<tool_call name",
            "<tool name",
            "<｜DSML｜invoke",
        ),
        xmlcalls.FUNCTION.parse,
    ),
    Recogniser("llama", ("<|python_tag|>", "<|python_start|>"), _pipes),
    Recogniser("mistral", ("[TOOL_CALLS]",), _mistral),
    Recogniser(
        "deepseek",
        (
            "<｜tool▁call",
            "<|tool_call_begin|>",
            "<|tool_calls_begin|>",
            "<｜tool_call",
            "<|tool_calls_section_begin|>",
        ),
        _deepseek,
    ),
    Recogniser("kimi", ("functions.",), _leaked),
    Recogniser("harmony", ("<|channel|>", "<|start|>"), harmony.parse),
    Recogniser("gemma", ("<|tool_call>", "<start_function_call>"), gemma.parse),
    Recogniser("gemma-bare", ("call:",), _bare_gemma),
    Recogniser(
        "actions",
        ("<|START_ACTION|>", "<|action_start|>", "<|tool_call_start|>", "<|tools_prefix|>"),
        _actions,
    ),
    Recogniser("phi", ("functools[",), _PHI.parse),
    Recogniser("qwen-agent", ("✿FUNCTION✿",), _QWEN_AGENT.parse),
    Recogniser("functionary", (">>>",), _FUNCTIONARY.parse),
    Recogniser("longcat", ("<longcat_tool_call>",), xmlcalls.GLM.parse),
    Recogniser("bracketed", ("[tool:",), _BRACKETED.parse),
    Recogniser("tag", ("<",), xmlcalls.parse_tag, marked=False),
    Recogniser(
        "react", ("Action:", "Action**:", "Action:**", "Final Answer"), react.parse, marked=False
    ),
    Recogniser("python", ("(",), pythoncall.parse, marked=False),
    Recogniser("block", ("{", "["), blocks.parse, marked=False),
]
