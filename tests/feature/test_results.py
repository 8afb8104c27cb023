"""What the model, the user and the disk see of a result: redacted, compact, bounded, whole elsewhere."""

from __future__ import annotations

import dataclasses
import datetime as dt
import json
import math
from decimal import Decimal
from pathlib import Path

import pytest
import turn_kit as k

from runner import ToolError, ToolResult, hookimpl

SECRET = "sk-test-AAAABBBBCCCCDDDDEEEEFFFF1234"
VALUE = "correct-horse-battery-7731"
ENVIRON = {"DEMO_API_KEY": SECRET, "DEMO_PASSWORD": VALUE}


def traces(folder: Path, *secrets: str) -> list[str]:
    """Files below the folder that hold one of the secrets."""
    return [
        str(path)
        for path in folder.rglob("*")
        if path.is_file() and any(secret.encode() in path.read_bytes() for secret in secrets)
    ]


# ---- secrets --------------------------------------------------------------------------------------
def test_a_secret_reaches_neither_the_model_nor_the_disk_whatever_way_it_takes(tmp_path, capfd):
    def dump() -> str:
        return "".join(f"{n} KEY={SECRET} pass {VALUE}\n" for n in range(2000))

    def boom(key: str) -> str:
        print("printed", key)
        raise RuntimeError(f"login failed for {key} at https://user:{VALUE}@host/")

    def refuse() -> str:
        raise ToolError(f"no entry with {SECRET}")

    class Leaky:
        @hookimpl
        def post_tool_use(self, call, result, session):
            return dataclasses.replace(
                result, content=f"{result.content} {SECRET}", output=VALUE, notes=SECRET
            )

    replies = [
        k.calls(("dump", {}), ("boom", {"key": SECRET}), ("refuse", {}), (VALUE, {})),
        k.say(f"the key is {SECRET}"),
    ]
    made = k.run(
        tmp_path, replies, dump, boom, refuse, environ=ENVIRON, plugins=[Leaky()],
        goals=[f"what does {SECRET} open?"],
    )  # fmt: skip
    assert traces(tmp_path, SECRET, VALUE) == []
    assert SECRET not in str(made.events)
    assert VALUE not in str(made.events)
    assert SECRET not in made.result.answer
    results = "".join(made.tool_messages())
    assert SECRET not in results
    assert VALUE not in results
    assert "[REDACTED" in results
    assert made.finished[0]["spilled_to"]
    out, err = capfd.readouterr()
    assert SECRET not in out + err
    assert VALUE not in out + err


def test_a_secret_in_a_providers_error_is_masked(tmp_path):
    reply = {"status": 401, "body": {"error": {"message": f"Incorrect API key: {SECRET}"}}}
    made = k.run(tmp_path, [reply], environ=ENVIRON)
    assert made.result.status == "failed"
    assert SECRET not in str(made.events) + made.result.answer
    assert traces(tmp_path, SECRET) == []


def test_the_models_own_arguments_go_back_to_it_as_it_wrote_them(tmp_path):
    def echo(text: str) -> str:
        return "fine"

    made = k.run(tmp_path, [k.call("echo", text=f"use {VALUE}"), k.say("x")], echo, environ=ENVIRON)
    (asked,) = [m for m in made.sent() if m.tool_calls]
    assert asked.tool_calls[0].arguments == {"text": f"use {VALUE}"}
    assert traces(tmp_path, VALUE) == []


def test_a_plugin_may_name_more_that_is_secret(tmp_path):
    class Patterns:
        @hookimpl
        def secret_patterns(self):
            return [r"case-\d{6}"]

    def look() -> str:
        return "see case-123456 and case-12"

    made = k.run(tmp_path, [k.call("look"), k.say("x")], look, plugins=[Patterns()])
    assert "case-123456" not in made.finished[0]["content"]
    assert "case-12" in made.finished[0]["content"]


# ---- any value is a result ------------------------------------------------------------------------
@dataclasses.dataclass
class Point:
    x: int = 1


class Evil:
    def __repr__(self):
        raise RuntimeError("no")


def circular():
    made = []
    made.append(made)
    return made


VALUES = {
    "datetime": dt.datetime(2026, 1, 2, tzinfo=dt.UTC),
    "set": {3, 1, 2},
    "path": Path("a/b"),
    "decimal": Decimal("1.10"),
    "nan": math.nan,
    "dataclass": Point(),
    "circular": circular(),
    "evil": Evil(),
    "tuple keys": {(1, 2): 3},
    "bytes": b"\x00\x01\xff" * 50,
    "text bytes": b"plain",
    "surrogate": "a\ud800b",
    "big int": 10**5000,
    "object": object(),
    "empty list": [],
    "empty dict": {},
    "false": False,
    "zero": 0,
    "generator": (n for n in range(3)),
    "deep": json.loads("[" * 500 + "]" * 500),
}


@pytest.mark.parametrize("name", VALUES)
def test_whatever_a_skill_returns_is_readable_text(tmp_path, name):
    def give() -> object:
        return VALUES[name]

    made = k.run(tmp_path, [k.call("give"), k.say("done")], give)
    (one,) = made.finished
    assert made.kinds == ["ok"]
    assert made.result.answer == "done"
    one["content"].encode()
    assert not any(ord(c) < 32 and c not in "\n\t" for c in one["content"])


@pytest.mark.parametrize("nothing", [None, ""])
def test_nothing_at_all_is_no_result(tmp_path, nothing):
    def give() -> object:
        return nothing

    made = k.run(tmp_path, [k.call("give"), k.say("done")], give)
    assert made.kinds == ["bad_result"]
    assert "returned" in made.finished[0]["content"]


def test_a_values_own_code_runs_where_the_skill_runs(tmp_path):
    import threading

    seen = []

    def numbers():
        seen.append(threading.current_thread().name)
        yield 1

    class Told:
        def __repr__(self):
            seen.append(threading.current_thread().name)
            return "told"

    def give() -> object:
        return [numbers(), Told()]

    made = k.run(tmp_path, [k.call("give"), k.say("x")], give)
    assert made.finished[0]["content"] == '[[1],"told"]'
    assert all(name.startswith("runner-worker") for name in seen)


def test_an_error_whose_text_cannot_be_had_is_still_a_result(tmp_path):
    class Bad(Exception):
        def __str__(self):
            raise SystemExit("gotcha")

    def boom() -> str:
        raise Bad

    made = k.run(tmp_path, [k.call("boom"), k.say("done")], boom)
    assert made.kinds == ["crashed"]
    assert "unprintable" in made.finished[0]["content"]


def test_control_characters_and_colours_are_taken_out(tmp_path):
    def paint() -> str:
        return "\x1b[31mred\x1b[0m \x1b]0;title\x07 10%\r20%\r100%\nnext\x00"

    made = k.run(tmp_path, [k.call("paint"), k.say("x")], paint)
    text = made.finished[0]["content"]
    assert "red" in text
    assert not set("\x1b\x07\x00\r") & set(text)
    assert "100%" in text
    assert "20%" not in text, "of a line that was drawn over, only what was last shown"


def test_binary_data_is_described(tmp_path):
    def dump() -> bytes:
        return bytes(range(256)) * 16

    made = k.run(tmp_path, [k.call("dump"), k.say("x")], dump)
    assert "binary data, 4096 bytes" in made.finished[0]["content"]


# ---- size -----------------------------------------------------------------------------------------
def numbered(count: int) -> str:
    return "".join(f"line {n:05d} of the long report\n" for n in range(1, count + 1))


def test_a_long_result_keeps_its_ends_and_says_what_is_missing(tmp_path):
    def report() -> str:
        return numbered(100)

    made = k.run(tmp_path, [k.call("report"), k.say("x")], report, results={"max_chars": 600})
    text = made.finished[0]["content"]
    assert "line 00001" in text
    assert "line 00100" in text
    assert "left out" in text
    assert len(text) < 1000
    whole = Path(made.finished[0]["spilled_to"])
    assert whole.read_text() == numbered(100)
    assert whole.stat().st_mode & 0o777 == 0o600


def test_what_was_left_out_can_be_read_in_pages(tmp_path):
    def report() -> str:
        return numbered(5000)

    replies = [k.call("report"), k.call("read_result", name="?", offset=2500, limit=3), k.say("x")]

    async def test():
        async with k.turns(tmp_path, replies, report) as made, k.opened(made) as session:
            session.listen(tell)
            await session.run("go")
            assert made.kinds == ["ok", "ok"]
            page = made.finished[1]["content"]
            assert "line 02500" in page
            assert "line 02502" in page
            assert "line 02503" not in page

    def tell(event):
        if event.type == "tool.finished" and event.data.get("spilled_to"):
            name = Path(event.data["spilled_to"]).name
            replies[1]["calls"][0]["arguments"]["name"] = name

    k.go(test)


@pytest.mark.parametrize("name", ["../../etc/passwd", "/etc/passwd", "s2/x.txt", "", "nothing.txt"])
def test_pages_are_read_of_this_sessions_results_alone(tmp_path, name):
    def report() -> str:
        return numbered(5000)

    made = k.run(tmp_path, [k.call("report"), k.call("read_result", name=name), k.say("x")], report)
    assert made.kinds[1] in {"failed", "invalid_arguments"}
    assert "root:" not in str(made.events)


def test_several_results_together_stay_within_the_batch(tmp_path):
    def report(tag: str) -> str:
        return f"HEAD-{tag} {'words of a report ' * 900} TAIL-{tag}"

    made = k.run(
        tmp_path,
        [k.calls(*(("report", {"tag": t}) for t in "abcde")), k.say("x")],
        k.tool(report, read_only=True, concurrent=True),
        results={"batch_chars": 12_000},
        model={"context_window": 60_000},
    )
    texts = made.tool_messages()
    assert sum(map(len, texts)) < 13_500
    assert all(f"HEAD-{t}" in x and f"TAIL-{t}" in x for t, x in zip("abcde", texts, strict=True))


def test_one_result_is_never_more_than_a_quarter_of_the_window(tmp_path):
    def report() -> str:
        return numbered(280)

    made = k.run(
        tmp_path,
        [k.call("report"), k.say("x")],
        k.tool(report, read_only=True, max_result_chars=50_000),
        model={"context_window": 4096, "max_tokens": 512},
    )
    assert len(made.finished[0]["content"]) < 4096 * 4 * 0.3


def test_a_tools_own_quota_wins_over_the_configs(tmp_path):
    def report() -> str:
        return numbered(200)

    made = k.run(
        tmp_path, [k.call("report"), k.say("x")], k.tool(report, max_result_chars=1000),
        model={"context_window": 60_000},
    )  # fmt: skip
    assert len(made.finished[0]["content"]) < 1500


# ---- hooks after the call -------------------------------------------------------------------------
class After:
    """A plugin that does something with each result."""

    def __init__(self, does):
        self.does = does

    @hookimpl
    def post_tool_use(self, call, result, session):
        return self.does(call, result)


def say_it() -> str:
    return "original"


@pytest.mark.parametrize(
    ("does", "content"),
    [
        (lambda call, result: None, "original"),
        (lambda call, result: dataclasses.replace(result, content="rewritten"), "rewritten"),
        (lambda call, result: 1 / 0, "original"),
        (lambda call, result: "junk", "original"),
        (lambda call, result: dataclasses.replace(result, content=42), "42"),
        (
            lambda call, result: ToolResult(
                call_id="x", tool="y", kind=result.kind, content="mine"
            ),
            "mine",
        ),
    ],
)
def test_a_hook_may_rewrite_a_result_and_one_that_fails_changes_nothing(tmp_path, does, content):
    made = k.run(tmp_path, [k.call("say_it"), k.say("x")], say_it, plugins=[After(does)])
    (one,) = made.finished
    assert one["content"] == content
    assert one["tool"] == "say_it"
    assert made.all_valid()


def test_each_hook_sees_what_the_last_one_made_of_it(tmp_path):
    def add(text):
        return After(
            lambda _call, result: dataclasses.replace(result, content=result.content + text)
        )

    made = k.run(tmp_path, [k.call("say_it"), k.say("x")], say_it, plugins=[add("-2"), add("-1")])
    assert made.finished[0]["content"] == "original-1-2", "the one registered last goes first"


def test_a_hook_that_hangs_costs_its_deadline_and_no_more(tmp_path):
    hang = k.Hang()
    made = k.run(
        tmp_path, [k.call("say_it"), k.say("x")], say_it,
        plugins=[After(lambda _call, _result: hang.wait())], config=k.settings(tmp_path, plugins={"hook_timeout": 0.05}),
    )  # fmt: skip
    hang.free.set()
    assert made.finished[0]["content"] == "original"


# ---- disk -----------------------------------------------------------------------------------------
def test_a_result_that_cannot_be_spilled_is_still_shown_cut(tmp_path):
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "spills").write_text("a file where a folder should be")

    def report() -> str:
        return numbered(5000)

    made = k.run(tmp_path, [k.call("report"), k.say("done")], report)
    (one,) = made.finished
    assert made.result.answer == "done"
    assert one["kind"] == "ok"
    assert not one["spilled_to"]
    assert 0 < len(one["content"]) < 20_000


def test_a_link_where_a_spill_would_go_is_not_followed(tmp_path):
    target = tmp_path / "victim"
    target.mkdir()
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "spills").mkdir(mode=0o700)

    def report() -> str:
        return numbered(5000)

    made = k.run(tmp_path, [k.call("report"), k.say("x")], report)
    spilled = Path(made.finished[0]["spilled_to"])
    assert spilled.resolve().is_relative_to((tmp_path / "state").resolve())
    assert list(target.iterdir()) == []
