"""Secrets leave by no door; ordinary text passes unchanged."""

from __future__ import annotations

import base64
import hashlib
import json
import time
import uuid

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from runner.errors import PluginError
from runner.redact import Redactor

PLAIN = Redactor({})
MIXED = "A1b2C3d4" * 8
PEM = "-----BEGIN RSA PRIVATE KEY-----\n" + "MIIEow1BAAKC\n" * 20 + "-----END RSA PRIVATE KEY-----"
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0NTY3ODkwIn0.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"

# kind, the part that must not survive, the text
SECRETS = [
    ("openai-key", "sk-proj-" + MIXED[:40], "key=sk-proj-" + MIXED[:40]),
    ("openai-key", "sk-test-AAAABBBBCCCCDDDDEEEEFFFF1234", "sk-test-AAAABBBBCCCCDDDDEEEEFFFF1234"),
    ("anthropic-key", MIXED[:30], "is sk-ant-api03-" + MIXED[:30] + " valid?"),
    ("github-token", "ghp_" + MIXED[:36], f"git clone https://ghp_{MIXED[:36]}@github.com/a/b"),
    ("github-token", "github_pat_" + MIXED[:40], "github_pat_" + MIXED[:40]),
    ("gitlab-token", "glpat-" + MIXED[:20], "glpat-" + MIXED[:20]),
    ("aws-key", "AKIAIOSFODNN7EXAMPL2", "id AKIAIOSFODNN7EXAMPL2."),
    ("google-key", "AIza" + MIXED[:35], '{"k": "AIza' + MIXED[:35] + '"}'),
    ("slack-token", "xoxb-123456789012-abcDEF", "xoxb-123456789012-abcDEF"),
    ("stripe-key", "sk_live_" + MIXED[:24], "sk_live_" + MIXED[:24]),
    ("jwt", JWT, f"cookie {JWT};"),
    ("private-key", "MIIEow1BAAKC", f"before\n{PEM}\nafter"),
    ("private-key", "MIIEow1BAAKC", json.dumps({"pem": PEM})),
    ("private-key", "MIIEow1BAAKC", PEM.partition("-----END")[0]),
    ("authorization", "abcdef0123456789", "Authorization: Bearer abcdef0123456789"),
    ("url-password", "p4ss/w@rd"[:4], "postgres://user:p4ss@db.example.com/x"),
    ("named", "hunter2hunter2", "password = 'hunter2hunter2'"),
    ("named", "a1b2c3d4e5f6", "export MY_API_KEY=a1b2c3d4e5f6"),
    ("named", "a1b2c3d4e5f6", '{"client_secret": "a1b2c3d4e5f6"}'),
    ("named", "a1b2c3d4e5f6", r"{\"client_secret\": \"a1b2c3d4e5f6\"}"),
]
IDS = [f"{kind}-{i}" for i, (kind, _, _) in enumerate(SECRETS)]


@pytest.mark.parametrize(("kind", "secret", "text"), SECRETS, ids=IDS)
def test_a_known_shape_is_masked_with_its_kind(kind, secret, text):
    masked = PLAIN.text(text)
    assert secret not in masked
    assert f"[REDACTED:{kind}]" in masked
    assert PLAIN.text(masked) == masked


@pytest.mark.parametrize(("kind", "secret", "text"), SECRETS, ids=IDS)
def test_text_around_a_secret_stays(kind, secret, text):
    masked = PLAIN.text(f"first line\n{text}\nlast line\n")
    assert masked.startswith("first line\n")
    assert masked.endswith("\nlast line\n") or "END" not in text


def test_a_token_after_an_escaped_newline_is_masked():
    assert MIXED[:40] not in PLAIN.text(json.dumps("x\nghp_" + MIXED[:40]))


@pytest.mark.parametrize(
    "text",
    [
        hashlib.sha256(b"x").hexdigest(),
        "commit " + hashlib.sha1(b"x", usedforsecurity=False).hexdigest() + "\nAuthor: a",
        str(uuid.UUID(int=123456789)),
        "data:image/png;base64," + base64.b64encode(bytes(range(256)) * 40).decode(),
        '{"key": "' + str(uuid.UUID(int=99)) + '", "keyword": "API_KEY2", "max_tokens": 4096}',
        "sk-learn-is-a-well-known-library-name-here",
        "token = get_token()",
        "password: str = Field(default=None)",
        "api_key = os.environ['MY_KEY_2']",
        "api_key_env = 'OPENAI_API_KEY_2'",
        "secret_name: production-database",
        "private_key_path=/etc/ssl/key1.pem",
        '"nextPageToken": "CAUQAA9xyz12345"',
        "the bearer of this token authenticates",
        "Basic authentication-required",
        "tokens: 12345678901",
        "https://example.com:8080/a@b",
        "PASSWORD=${DB_PASSWORD_1}",
        "password=your-password-123",
        "-----BEGIN CERTIFICATE-----\nMIIB\n-----END CERTIFICATE-----",
        "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI me@host",
        "3.11.7 2026-11-30T22:15:00Z sha256:0a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f6071829",
        "deploy/env.example:4: API_KEY=\ndocs/setup.md:7: `API_KEY`, sent to every carrier",
        json.dumps("env.example: API_KEY=\ndocs/setup.md:7: see there"),
        "eyJ is how base64 of a brace begins; eyJhbGciOiJIUzI1NiJ9 alone is no token",
    ],
)
def test_ordinary_text_is_left_alone(text):
    assert PLAIN.text(text) is text or PLAIN.text(text) == text


@pytest.mark.parametrize("between", [" ", "", "\n  ", " \n\t"])
def test_a_value_in_the_same_line_or_indented_in_the_next_is_masked(between):
    text = f'password:{between}"hunter2-hunter3"\nname: x'
    assert "hunter3" not in PLAIN.text(text)
    stream = PLAIN.stream()
    assert "hunter3" not in "".join([*map(stream.feed, text), stream.end()])


# ---- values of the environment

ENVIRON = {
    "DEMO_API_KEY": "kE7-random-value",
    "DEMO_PASSWORD": "correct-horse-battery-9312",
    "githubToken": 'quo"ted\nvalue7',
    "SECRET_STORE": "production",
    "TOKEN_COUNT": "1234567890",
    "MODE_SECRET": "not a secret",
    "SSL_KEY_FILE": "/etc/ssl/key7.pem",
    "KEYBOARD": "layout-7-intl",
    "SHORT_KEY": "ab12",
    "HOME": "/root/home1234",
    "ODD_NAME": "named-by-config-77",
}
BY_VALUE = Redactor(ENVIRON, ["ODD_NAME", "ABSENT"])


def test_a_secret_variable_is_masked_in_whatever_quotes_it_is_shown():
    value = 'h7#Kq"2\\xZ!pw'
    quoting = Redactor({"DEMO_PASSWORD": value})
    for text in (value, json.dumps({"x": value}), str({"x": value})):
        assert "xZ!pw" not in quoting.text(text)


@pytest.mark.parametrize("name", ["DEMO_API_KEY", "DEMO_PASSWORD", "githubToken", "ODD_NAME"])
def test_a_secret_variable_is_masked_by_its_value(name):
    value = ENVIRON[name]
    for text in (f"it is {value}!", json.dumps({"x": value})):
        masked = BY_VALUE.text(text)
        assert f"[REDACTED:{name}]" in masked
        assert value not in masked


@pytest.mark.parametrize(
    "name",
    ["SECRET_STORE", "TOKEN_COUNT", "MODE_SECRET", "SSL_KEY_FILE", "KEYBOARD", "SHORT_KEY", "HOME"],
)
def test_a_plain_value_is_not(name):
    text = f"it is {ENVIRON[name]} here"
    assert BY_VALUE.text(text) == text


def test_the_longer_of_two_values_is_masked_whole():
    both = Redactor({"A_KEY": "abcd1234", "B_KEY": "abcd1234efgh"})
    assert both.text("x abcd1234efgh y") == "x [REDACTED:B_KEY] y"


def test_each_line_of_a_key_in_the_environment_is_masked():
    made = Redactor({"DEPLOY_KEY": PEM})
    assert "MIIE" not in made.text(PEM.replace("\n", "\\n"))


# ---- values and patterns


def test_values_are_masked_deeply_and_clean_ones_are_shared():
    clean = {"a": [1, "fine"], "b": ("x", None)}
    value = {"clean": clean, "list": ["ghp_" + MIXED[:36]], "ghp_" + MIXED[:36]: 1}
    masked = PLAIN.value(value)
    assert "ghp_" not in json.dumps(masked)
    assert masked["clean"] is clean
    assert PLAIN.value(clean) is clean
    assert "ghp_" in value["list"][0]


def test_a_field_that_says_secret_is_masked():
    masked = PLAIN.value(
        {"password": "a1b2c3d4", "page_token": "a1b2c3d4", "token_count": "9a9a9a9a"}
    )
    assert masked == {
        "password": "[REDACTED:named]",
        "page_token": "a1b2c3d4",
        "token_count": "9a9a9a9a",
    }


@pytest.mark.parametrize("name", ["password", "secret", "token", "credential", "api_key"])
def test_a_name_spelt_with_letters_that_look_the_same_still_says_secret(name):
    for letter, alike in (("s", "\u017f"), ("k", "\u212a"), ("i", "\u0130"), ("i", "\u0131")):
        spelt = name.replace(letter, alike)
        assert PLAIN.value({spelt: "abc12345xyz"}) == {spelt: "[REDACTED:named]"}
        assert "abc12345xyz" not in PLAIN.text(f"{spelt}=abc12345xyz")


def test_a_cycle_does_not_hang():
    ring: dict = {}
    ring["ring"] = ring
    assert PLAIN.value(ring)


def test_a_plugin_pattern_is_masked_and_a_wrong_one_is_named():
    assert (
        Redactor({}, patterns=[r"CUST-\d+"]).text("is CUST-12345 here")
        == "is [REDACTED:pattern] here"
    )
    with pytest.raises(PluginError, match="CUST"):
        Redactor({}, patterns=["CUST-("])


# ---- streams


@settings(max_examples=200, deadline=None)
@given(
    st.sampled_from(SECRETS),
    st.lists(st.integers(1, 40), min_size=1, max_size=30),
    st.booleans(),
)
def test_a_secret_split_over_pieces_never_shows(case, sizes, padded):
    _, secret, text = case
    text = f"some words before {text} and after" if padded else text
    stream = PLAIN.stream()
    shown, at, turn = "", 0, 0
    while at < len(text):
        size = sizes[turn % len(sizes)]
        shown += stream.feed(text[at : at + size])
        assert secret not in shown
        at, turn = at + size, turn + 1
    shown += stream.end()
    assert secret not in shown
    assert shown == PLAIN.text(text)


@pytest.mark.parametrize("value", ["with 1 space in it", "plain-but-9312-random"])
def test_a_value_of_the_environment_split_over_pieces_never_shows(value):
    stream = Redactor({"MY_PASSWORD": value}).stream()
    shown = "".join(stream.feed(c) for c in f"say {value} now") + stream.end()
    assert shown == "say [REDACTED:MY_PASSWORD] now"


def test_a_stream_of_words_is_held_back_by_a_word_only():
    stream = PLAIN.stream()
    assert stream.feed("Hello wor") == "Hello "
    assert stream.feed("ld, all") == "world, "
    assert stream.end() == "all"


# ---- cost


@pytest.mark.parametrize(
    "flood",
    [
        "sk-",
        "sk- ",
        "-----BEGIN RSA PRIVATE KEY-----",
        "-----BEGIN RSA PRIVATE KEY-----\n",
        "-----BEGIN ",
        "eyJ",
        "eyJaaaaaaaaaaa.eyJ",
        "SG.",
        "password=",
        "token ",
        "token token_",
        "://a:",
        "Bearer ",
        "AKIA",
        "a",
        "\\n",
    ],
)
def test_a_flood_costs_linear_time(flood):
    text = flood * (1_000_000 // len(flood))
    began = time.perf_counter()
    PLAIN.text(text)
    assert time.perf_counter() - began < 1.5


@given(st.text(max_size=300))
def test_no_text_raises_and_masking_twice_is_masking_once(text):
    once = BY_VALUE.text(text)
    assert BY_VALUE.text(once) == once


def test_the_working_directory_is_no_password():
    found = Redactor({"PWD": "/home/me/project-7", "DB_PWD": "hunter2-hunter2"})
    assert found.text("in /home/me/project-7: hunter2-hunter2") == (
        "in /home/me/project-7: [REDACTED:DB_PWD]"
    )
