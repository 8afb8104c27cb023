"""A recorded session as a page: one file, quick, searchable, and deaf to what stands in it."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from browser import Browser, missing
from trajectories import HOSTILE, eventful_session, long_session

from runner.record.page import embedded, page

ABSENT = missing()
needs_browser = pytest.mark.skipif(bool(ABSENT), reason=ABSENT or "a browser is there")
ACTING = re.compile(
    r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u2028\u2029\u202a-\u202e\u2066-\u2069]"
)


@pytest.fixture(scope="module")
def browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    with Browser(tmp_path_factory.mktemp("browser")) as opened:
        yield opened


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("odd") / "odd.html"
    file.write_text(page(eventful_session(), "s1", ["s1.jsonl: 2 corrupt line(s) skipped"]))
    return file


@pytest.fixture(scope="module")
def long(tmp_path_factory: pytest.TempPathFactory) -> Path:
    file = tmp_path_factory.mktemp("long") / "long.html"
    file.write_text(page(long_session(1000), "s1"))
    return file


def rows(browser: Browser) -> list[str]:
    return browser.run("return [...document.querySelectorAll('.row')].map((r) => r.innerText)")


def count(browser: Browser) -> str:
    return browser.run("return document.getElementById('count').textContent")


def search(browser: Browser, text: str, shows: str) -> None:
    browser.run(
        "const f = document.getElementById('find'); f.value = arguments[0];"
        "f.dispatchEvent(new Event('input'))",
        text,
    )
    browser.until(f"document.getElementById('count').textContent === {json.dumps(shows)}")


def test_the_page_is_one_file_that_may_load_nothing() -> None:
    text = page(eventful_session(), "s1")
    markup = re.sub(r"<script.*?</script>|<style>.*?</style>", "", text, flags=re.DOTALL)
    assert not re.search(r"\b(src|href|action|style|on\w+)\s*=", markup)
    assert not re.search(r"@import|url\(", text)
    policy = re.search(r'Content-Security-Policy" content="([^"]+)"', text)
    assert policy is not None
    assert policy[1].startswith("default-src &#x27;none&#x27;")
    assert "unsafe" not in policy[1]


def test_no_text_of_the_record_is_markup_in_the_file() -> None:
    text = page(eventful_session(), "s1", [HOSTILE])
    plain = page([], "s1")
    assert text.count("<script") == plain.count("<script") == 2
    assert text.count("</script") == plain.count("</script") == 2
    assert "<img" not in text
    assert text.count("<!--") == plain.count("<!--")
    assert not ACTING.search(text.replace("\n", ""))


def test_what_is_embedded_is_the_record_itself() -> None:
    value = {"text": HOSTILE, "more": ["\ud800", "é", 1.5, None]}
    data = embedded(value)
    assert json.loads(data) == value
    assert data.isascii()


def test_a_session_name_cannot_break_the_title() -> None:
    assert "<title>&lt;b&gt; · slotrunner</title>" in page([], "<b>")


@needs_browser
def test_a_thousand_iterations_open_in_under_a_second(browser: Browser, long: Path) -> None:
    times = []
    for _ in range(3):
        browser.open(long)
        times.append(int(browser.run("return document.documentElement.dataset.ready")))
    assert min(times) < 1000, times
    assert len(rows(browser)) < 60
    assert count(browser) == "1,000 iterations"


@needs_browser
def test_only_what_is_seen_is_drawn_and_everything_can_be_reached(
    browser: Browser, long: Path
) -> None:
    browser.open(long)
    browser.press("G")
    assert "That is all of them." in rows(browser)[-1]
    browser.press("k")
    assert browser.run("return document.activeElement.innerText").startswith("1000")
    browser.press("g")
    assert browser.run("return document.activeElement.innerText").startswith("turn 1")
    assert len(rows(browser)) < 60


@needs_browser
def test_the_keyboard_moves_opens_and_explains(browser: Browser, odd: Path) -> None:
    browser.open(odd)
    browser.press("g", "j", "Down", "Down")
    assert browser.run("return document.activeElement.getAttribute('aria-expanded')") == "false"
    browser.press("e")
    assert browser.run("return document.activeElement.getAttribute('aria-expanded')") == "true"
    assert "completed: Nothing there." in browser.run(
        "return document.activeElement.parentNode.innerText"
    )
    browser.press("Enter")
    assert browser.run("return document.activeElement.getAttribute('aria-expanded')") == "false"
    browser.press("?")
    assert browser.run("return document.getElementById('keys').open") is True
    browser.press("Escape")
    browser.press("/")
    assert browser.run("return document.activeElement.id") == "find"
    browser.press("Escape")
    assert browser.run("return document.activeElement.className") == "head"


@needs_browser
def test_a_search_shows_what_fits_and_marks_it(browser: Browser, long: Path) -> None:
    browser.open(long)
    search(browser, "docs/part-77.md", "1 of 1,000")
    browser.click(".row .head")
    assert (
        browser.run("return document.querySelector('.body mark').textContent") == "docs/part-77.md"
    )
    search(browser, "no such text", "0 of 1,000")
    assert "Nothing fits" in browser.run("return document.getElementById('list').innerText")
    search(browser, "", "1,000 iterations")


@needs_browser
def test_filters_leave_problems_tools_and_kinds(browser: Browser, odd: Path) -> None:
    browser.open(odd)
    choose = (
        "const s = document.getElementById(arguments[0]); s.value = arguments[1];"
        "s.dispatchEvent(new Event('change')); return document.getElementById('count').textContent"
    )
    assert browser.run(choose, "tool", "send_mail") == "2 of 5"
    assert browser.run(choose, "tool", "") == "5 iterations"
    for kind, shows in (("brake", "1 of 5"), ("approval", "1 of 5"), ("agent", "1 of 5")):
        assert browser.run(choose, "kind", kind) == shows
    browser.run(choose, "kind", "")
    browser.click("#problems")
    assert count(browser) == "4 of 5"
    browser.press("p")
    assert count(browser) == "5 iterations"


@needs_browser
def test_queueing_running_retrying_and_asking_are_told_apart(browser: Browser, odd: Path) -> None:
    browser.open(odd)
    segments = browser.run(
        "return [...document.querySelectorAll('.fall .span')].map((s) => [s.innerText.split('\\n')[0],"
        " [...s.querySelectorAll('.seg')].map((g) => g.className.slice(4)).join(' ')])"
    )
    found = dict(map(tuple, segments))
    assert found["send_mail"] == "person queue tool retry tool"
    assert found["edit_file"] == "queue tool"
    assert found["model"].startswith("queue model")


@needs_browser
def test_everything_that_happened_can_be_read(browser: Browser, odd: Path) -> None:
    browser.open(odd)
    browser.run("order.forEach((i, at) => toggle(at, true))")
    text = browser.run(
        "const list = document.getElementById('list'); let all = document.body.innerText;"
        "for (let y = 0; y < list.scrollHeight; y += 200) { list.scrollTop = y; draw(); all += list.innerText; }"
        "return all"
    )
    for fact in (
        "about 1,320 tokens", "1 line changed in notes.md", "modified", "SMTP", "[Loop notice]",
        "breaker.opened", "context.truncated", "before_tokens: 6100", "was never closed",
        "approval.answered", "decision: allow", "result-1.txt", "show all: 89 lines", "$0.0123",
        "Nothing there.", "no end was recorded", "rate limit", "2 corrupt line(s) skipped",
    ):  # fmt: skip
        assert fact in text, fact


@needs_browser
def test_hostile_text_is_seen_and_does_nothing(browser: Browser, odd: Path) -> None:
    browser.complaints()
    browser.open(odd)
    assert browser.run("return document.title") == "s1 · slotrunner"
    assert browser.run("return document.querySelectorAll('img, iframe, script').length") == 2
    text = browser.run("return document.getElementById('list').innerText")
    assert '<img src=x onerror="document.title' in text
    assert not ACTING.search(text)
    assert "ESC" in text
    assert "U+202E" in text
    assert browser.complaints() == []


@needs_browser
def test_records_of_an_odd_shape_never_leave_an_empty_page(
    browser: Browser, tmp_path: Path
) -> None:
    lines = list(eventful_session())
    for number, line in enumerate(lines):
        key = list(line)[number % len(line)]
        if key not in {"type", "session"}:
            line[key] = [None, 7, "x", {"a": []}, [1]][number % 5]
    file = tmp_path / "bent.html"
    file.write_text(page([*lines, {"type": "tool.finished", "session": "s1"}], "s1"))
    browser.complaints()
    browser.open(file)
    assert len(rows(browser)) > 3
    browser.run("order.forEach((i, at) => toggle(at, true))")
    assert browser.complaints() == []


@needs_browser
def test_light_and_dark_follow_the_system_until_somebody_chooses(
    browser: Browser, odd: Path
) -> None:
    paper = "return getComputedStyle(document.body).backgroundColor"
    try:
        browser.prefer("light")
        browser.open(odd)
        light = browser.run(paper)
        browser.prefer("dark")
        browser.until("document.documentElement.dataset.theme === 'dark'")
        dark = browser.run(paper)
        assert dark != light
        browser.click("#theme")
        assert browser.run(paper) == light
        browser.press("t")
        assert browser.run(paper) == dark
    finally:
        browser.prefer("")


@needs_browser
def test_text_stands_out_from_its_ground_in_both_themes(browser: Browser, odd: Path) -> None:
    contrast = """
      const rgb = (c) => c.match(/[\\d.]+/g).map(Number);
      const light = ([r, g, b]) => [r, g, b].map((v) => v / 255).map((v) => v <= 0.03928 ? v / 12.92
        : ((v + 0.055) / 1.055) ** 2.4).reduce((s, v, i) => s + v * [0.2126, 0.7152, 0.0722][i], 0);
      const ground = (n) => { for (; n; n = n.parentElement) { const c = rgb(getComputedStyle(n).backgroundColor);
        if (c.length === 3 || c[3] > 0) return c; } return [255, 255, 255]; };
      const poor = [];
      for (const n of document.querySelectorAll('body *')) {
        if (![...n.childNodes].some((c) => c.nodeType === 3 && c.textContent.trim()) || !n.offsetParent) continue;
        const a = light(rgb(getComputedStyle(n).color)), b = light(ground(n));
        const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
        if (ratio < 4.5) poor.push([n.tagName, n.className, n.textContent.slice(0, 30), ratio.toFixed(2)].join(' '));
      }
      return poor;
    """
    browser.open(odd)
    for _ in range(2):
        assert browser.run(contrast) == []
        browser.click("#theme")


@needs_browser
def test_every_control_has_a_name_and_rows_say_where_they_stand(
    browser: Browser, odd: Path
) -> None:
    browser.open(odd)
    nameless = browser.run(
        "return [...document.querySelectorAll('button, input, select')].filter((n) => !(n.textContent.trim()"
        " || n.getAttribute('aria-label') || (n.labels || []).length)).map((n) => n.outerHTML)"
    )
    assert nameless == []
    row = browser.run(
        "const r = document.querySelector('.row'); return [r.getAttribute('role'),"
        " r.getAttribute('aria-posinset'), r.getAttribute('aria-setsize')]"
    )
    assert row == ["listitem", "1", "8"]
