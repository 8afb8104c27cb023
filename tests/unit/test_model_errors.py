"""A server's failure is classified by what it means for the next attempt."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest

from runner.errors import (
    ContextOverflow,
    ModelRefused,
    ModelUnavailable,
    ReplyUnreadable,
    ToolsUnsupported,
)
from runner.model.errors import classify, counts_reply, read_retry_after, window_in

OVERFLOWS = [
    "This model's maximum context length is 8192 tokens. However, your messages resulted in 9120 tokens.",
    "prompt is too long: 210000 tokens > 200000 maximum",
    "input length and `max_tokens` exceed context limit: 190000 + 20000 > 200000",
    "The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).",
    "Input is too long for requested model.",
    "Please reduce the length of the messages or completion.",
    "the request exceeds the available context size. try increasing the context size",
    "request (9000 tokens) exceeds the available context size (8192 tokens), try increasing it",
    "the input length exceeds the context length",
    "input length exceeds maximum context length",
    "prompt too long; exceeded max context length by 120 tokens",
    "Your request exceeded model token limit: 262144",
    "This model's maximum prompt length is 131072 but the request contains 140000 tokens.",
    "Trying to keep the first 9000 tokens when context the overflows. However, the model is loaded with context length of only 4096 tokens, which is not enough: tokens to keep from the initial prompt is greater than the context length",
    "Prompt exceeds max length",
    "Range of input length should be [1, 30720]",
    "prompt token count of 140000 exceeds the limit of 128000",
]


@pytest.mark.parametrize("text", OVERFLOWS, ids=range(len(OVERFLOWS)))
@pytest.mark.parametrize("status", [400, 500, None])
def test_every_providers_words_for_a_full_context_are_known(text, status):
    assert type(classify(status, json.dumps({"error": {"message": text}}))) is ContextOverflow


@pytest.mark.parametrize(
    ("status", "text", "kind", "says"),
    [
        (400, '{"error": "\\"qwen\\" does not support tools"}', ToolsUnsupported, "tools"),
        (
            404,
            '{"error": {"message": "No endpoints found that support tool use."}}',
            ToolsUnsupported,
            "",
        ),
        (500, '{"error": {"message": "tools param requires --jinja flag"}}', ToolsUnsupported, ""),
        (
            500,
            '{"error": {"message": "x does not match the expected peg-native format"}}',
            ReplyUnreadable,
            "",
        ),
        (500, '{"error": "error parsing tool call: raw=\'{\'"}', ReplyUnreadable, ""),
        (400, '{"error": {"message": "Failed", "code": "tool_use_failed"}}', ReplyUnreadable, ""),
        (404, '{"error": "model \'x\' not found"}', ModelRefused, "ollama pull x"),
        (401, '{"error": {"message": "bad key"}}', ModelRefused, "MY_KEY"),
        (403, "forbidden", ModelRefused, "MY_KEY"),
        (429, '{"error": {"message": "slow down"}}', ModelUnavailable, "slow down"),
        (
            429,
            '{"error": {"message": "Request too large, too many tokens per minute"}}',
            ModelUnavailable,
            "",
        ),
        (429, '{"error": {"message": "x", "code": "insufficient_quota"}}', ModelRefused, "credit"),
        (400, '{"error": {"message": "Your credit balance is too low"}}', ModelRefused, "credit"),
        (500, "oops", ModelUnavailable, "500"),
        (
            503,
            '{"error": "server busy, please try again.  maximum pending requests exceeded"}',
            ModelUnavailable,
            "busy",
        ),
        (
            529,
            '{"type": "error", "error": {"type": "overloaded_error", "message": "Overloaded"}}',
            ModelUnavailable,
            "Overloaded",
        ),
        (408, "", ModelUnavailable, "408"),
        (501, "", ModelRefused, "501"),
        (400, '{"error": {"message": "temperature too high"}}', ModelRefused, "temperature"),
        (422, '{"detail": [{"msg": "field required"}]}', ModelRefused, "field required"),
        (
            400,
            '{"error": {"message": "max_tokens exceeds the limit of 8192"}}',
            ModelRefused,
            "8192",
        ),
        (413, "too large", ContextOverflow, ""),
        (302, "", ModelRefused, "base_url"),
        (200, "<!DOCTYPE html><html></html>", ModelRefused, "HTML"),
        (404, "<html><h1>404</h1></html>", ModelRefused, "base_url"),
        (502, "<html>Bad gateway</html>", ModelUnavailable, "HTML"),
        (None, '{"error": "llama runner process has terminated"}', ModelUnavailable, "terminated"),
    ],
)
def test_a_failure_is_classified_by_status_and_text(status, text, kind, says):
    error = classify(status, text, model="ollama/x", key_env="MY_KEY")
    assert type(error) is kind, error
    assert says in str(error)


@pytest.mark.parametrize(
    "text", ["a\nb\r\n\x1b[31mc", "x" * 5000, '{"error":' * 3000, "\x00\ud800"]
)
def test_a_message_is_one_short_line_whatever_the_server_sent(text):
    message = str(classify(500, text, model="openai/m", where="http://h/v1"))
    assert len(message.splitlines()) == 1
    assert len(message) < 500
    assert message.isprintable()


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "250"}, 0.25),
        ({"retry-after": "Wed, 01 Jan 2025 00:00:30 GMT"}, 30.0),
        ({"retry-after": "Tue, 31 Dec 2024 00:00:00 GMT"}, 0.0),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "-5"}, None),
        ({"retry-after": "9" * 400}, None),
        ({}, None),
    ],
)
def test_retry_after_is_read_as_a_number_or_a_date(headers, seconds):
    assert read_retry_after(headers, now=datetime(2025, 1, 1, tzinfo=UTC)) == seconds


@pytest.mark.parametrize(
    ("said", "tokens"),
    [
        ("This model's maximum context length is 8192 tokens. However, you asked for 9000", 8192),
        ("request (5000 tokens) exceeds the available context size (4096 tokens)", 4096),
        ("the model is loaded with context length of only 4096 tokens, which is", 4096),
        ("prompt is too long: 210011 tokens > 200000 maximum", 200_000),
        ("The input token count (1200000) exceeds the maximum number of tokens allowed (1048576).", 1_048_576),
        ('{"n_prompt_tokens": 9000, "n_ctx": 8192}', 8192),
        ("This model's maximum context length is 524,288 tokens. However, you asked for 600,000", 524_288),
        ("request (900,000 tokens) exceeds the available context size (1_048_576 tokens)", 1_048_576),
        ("maximum context length is 524.288 tokens", None),
        ("maximum context length is 512 k tokens", None),
        ("the prompt exceeds the context window by 300 tokens", None),
        ("input length exceeds maximum context length", None),
    ],
)  # fmt: skip
def test_the_window_a_server_names_is_understood(said, tokens):
    assert window_in(said) == tokens


def test_a_server_that_counts_the_room_for_the_reply_says_so():
    assert counts_reply("you requested 4500 tokens (404 in the messages, 4096 in the completion)")
    assert counts_reply("`inputs` tokens + `max_new_tokens` must be <= 4096")
    assert not counts_reply("However, your messages resulted in 9120 tokens.")
