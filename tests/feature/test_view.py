"""The live page: who may look, what is served, and the buttons for sessions of the same process."""

from __future__ import annotations

import asyncio
import http.client
import json
import re
import threading
from contextlib import contextmanager

import pytest
import trajectories as t
from browser import Browser, missing

from runner import Runner, ScriptedModel
from runner.view import LiveView, View

ABSENT = missing()
needs_browser = pytest.mark.skipif(bool(ABSENT), reason=ABSENT or "a browser is there")


def look(name: str) -> str:
    """Looks at something."""
    return f"{name} was looked at"


@pytest.fixture(name="view")
def _view(tmp_path):
    settings = t.config(tmp_path)
    replies = [t.call("look", name="</script><b>"), t.say("seen")]
    t.record(settings, replies, skills=[look], goals=["the <goal>\x1b"])
    served = View(settings.paths.state)
    served.start()
    yield served
    served.close()


def ask(view, path=None, *, method="GET", body=None, raw=None, **headers):
    """A request as sent by anybody; status, headers and text of its answer."""
    connection = http.client.HTTPConnection("127.0.0.1", view.port, timeout=10)
    data = json.dumps(body) if body is not None else raw
    if method == "POST":
        headers = {"Content-Type": "application/json", **headers}
    start = f"/{view.url.split('/')[3]}/"
    connection.request(method, start + path if path is not None else "/", data, headers)
    answer = connection.getresponse()
    text = answer.read().decode()
    connection.close()
    return answer.status, dict(answer.getheaders()), text


# ---- who may look


def test_it_listens_on_loopback_with_a_long_token_of_its_own(view, tmp_path):
    other = View(tmp_path)
    other.close()
    token = view.url.split("/")[3]
    assert view.url.startswith("http://127.0.0.1:")
    assert len(token) >= 40
    assert token not in other.url


@pytest.mark.parametrize("path", ["/", "/wrong/", "/s/s1", "/../", "//"])
def test_without_the_token_there_is_nothing(view, path):
    connection = http.client.HTTPConnection("127.0.0.1", view.port, timeout=10)
    connection.request("GET", path)
    answer = connection.getresponse()
    assert (answer.status, answer.read()) == (404, b"there is nothing here")
    connection.close()


@pytest.mark.parametrize(
    "host", ["evil.example", "evil.example:{port}", "127.0.0.1", "", "[::1]:{port}"]
)
def test_a_request_under_another_name_is_refused_even_with_the_token(view, host):
    status, _headers, text = ask(view, "", Host=host.format(port=view.port))
    assert (status, text) == (421, "this server has another name")


def test_it_answers_to_localhost_too(view):
    assert ask(view, "", Host=f"localhost:{view.port}")[0] == 200


def test_no_other_site_is_let_in_and_nothing_is_kept(view):
    for path in ("", "s/s1", "s/s1/page", "s/s1/state"):
        _status, headers, _text = ask(view, path, Origin="http://evil.example")
        assert not [name for name in headers if name.lower().startswith("access-control")]
        assert headers["Cache-Control"] == "no-store"
        assert headers["Referrer-Policy"] == "no-referrer"


@pytest.mark.parametrize(
    ("path", "ancestors"), [("", "'none'"), ("s/s1", "'none'"), ("s/s1/page", "'self'")]
)
def test_no_other_site_can_frame_a_page(view, path, ancestors):
    policy = ask(view, path)[1]["Content-Security-Policy"]
    assert f"frame-ancestors {ancestors}" in policy
    assert "unsafe" not in policy


# ---- what is served


def test_the_list_names_each_session_and_nothing_in_it_acts(view):
    _status, _headers, text = ask(view, "")
    assert '<a href="s/s1">s1</a>' in text
    assert "the &lt;goal&gt;\\x1b" in text
    assert "\x1b" not in text


def test_the_page_of_a_session_is_the_one_that_trace_html_writes(view):
    _status, _headers, text = ask(view, "s/s1/page")
    assert 'id="data"' in text
    assert "</script><b>" not in text
    found = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
    assert found["session"] == "s1"
    assert found["records"][-1]["type"] == "turn.finished"


@pytest.mark.parametrize(
    "path", ["s/nosuch", "s/..", "s/s1/nosuch", "x", "s/%2e%2e%2fa", "s/s1/page/x"]
)
def test_what_is_not_there_is_404(view, path):
    assert ask(view, path)[0] == 404


def test_the_state_grows_with_the_record(view, tmp_path):
    before = json.loads(ask(view, "s/s1/state")[2])["size"]
    t.record(t.config(tmp_path), [t.say("more")], goals=["again"])
    assert json.loads(ask(view, "s/s1/state")[2])["size"] > before


def test_a_session_of_another_process_can_only_be_looked_at(view):
    origin = view.url.rsplit("/", 2)[0]
    status, _headers, text = ask(view, "s/s1/cancel", method="POST", body={}, Origin=origin)
    assert status == 409
    assert "another process" in text


# ---- the buttons


@contextmanager
def running(tmp_path, replies, skills=()):
    """A runner on a loop of its own with a view, and a way to run coroutines there."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()

    def call(work):
        return asyncio.run_coroutine_threadsafe(work, loop)

    runner = Runner(
        model=ScriptedModel({"replies": list(replies)}), skills=skills, config=t.config(tmp_path)
    )

    async def begin():
        await runner.start()
        view = LiveView(runner)
        session = await runner.open("s1", (), stream=True)
        return view, await view.start(), session

    view, url, session = call(begin()).result(20)

    class Address:
        port = int(url.split(":")[2].split("/")[0])

    Address.url = url
    try:
        yield Address, session, call
    finally:

        async def end():
            await view.close()
            await session.close()
            await runner.close()

        call(end()).result(20)
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        loop.close()


def until(true):
    """Waits until it is true."""
    stop = threading.Event()
    for _ in range(400):
        if true():
            return
        stop.wait(0.025)
    raise AssertionError("never came true")


def post(address, what, **body):
    origin = f"http://127.0.0.1:{address.port}"
    return ask(address, f"s/s1/{what}", method="POST", body=body, Origin=origin)


def state(address):
    return json.loads(ask(address, "s/s1/state")[2])


def test_cancel_ends_the_turn(tmp_path):
    with running(tmp_path, [{"hang": True}]) as (address, session, call):
        turn = call(session.run("go"))
        until(lambda: state(address)["running"])
        assert post(address, "cancel")[0] == 200
        assert turn.result(20).status == "cancelled"
        assert not state(address)["running"]


def test_one_call_is_cancelled_and_the_model_is_told_more(tmp_path):
    free = threading.Event()

    def wait() -> str:
        """Waits."""
        free.wait(20)
        return "waited"

    replies = [t.call("wait"), t.say("done")]
    with running(tmp_path, replies, [wait]) as (address, session, call):
        turn = call(session.run("go"))
        until(lambda: state(address)["calls"])
        (one,) = state(address)["calls"]
        assert one["tool"] == "wait"
        assert post(address, "steer", text="be brief")[0] == 200
        assert post(address, "cancel-call", call_id=one["id"])[0] == 200
        assert turn.result(20).status == "completed"
        free.set()
        said = [m.content for m in session.state.transcript]
    assert "be brief" in said
    assert any("was interrupted" in text for text in said)


def test_what_no_page_of_this_server_sent_does_nothing(tmp_path):
    with running(tmp_path, [{"hang": True}]) as (address, session, call):
        turn = call(session.run("go"))
        until(lambda: state(address)["running"])
        origin = f"http://127.0.0.1:{address.port}"
        refused = {"method": "POST", "body": {}}
        assert ask(address, "s/s1/cancel", **refused)[0] == 403
        assert ask(address, "s/s1/cancel", **refused, Origin="http://evil.example")[0] == 403
        assert ask(address, "s/s1/cancel", **refused, Origin="null")[0] == 403
        form = {"method": "POST", "raw": "a=b", "Origin": origin, "Content-Type": "text/plain"}
        assert ask(address, "s/s1/cancel", **form)[0] == 400
        assert ask(address, "s/s1/cancel", method="POST", raw="[1]", Origin=origin)[0] == 400
        assert ask(address, "s/s1/cancel")[0] == 404
        assert post(address, "explode")[0] == 409
        assert post(address, "steer", text=" ")[0] == 409
        assert post(address, "cancel-call", call_id="nosuch")[0] == 409
        assert state(address)["running"]
        post(address, "cancel")
        turn.result(20)
        assert post(address, "cancel")[0] == 409


# ---- in a browser


class Window(Browser):
    """A browser that opens addresses, too."""

    def go(self, address):
        self._post("url", {"url": address})


INNER = "document.querySelector('iframe:not(.coming)')?.contentDocument"


@needs_browser
def test_a_running_session_is_followed_and_steered_in_a_browser(tmp_path):
    free = threading.Event()

    def wait() -> str:
        """Waits."""
        free.wait(20)
        return "waited"

    replies = [t.call("wait"), t.say("the last word")]
    with (
        running(tmp_path, replies, [wait]) as (address, session, call),
        Window(tmp_path) as window,
    ):
        turn = call(session.run("go"))
        until(lambda: state(address)["calls"])
        window.go(address.url)
        window.until("document.querySelector('a[href=\"s/s1\"]')")
        window.click('a[href="s/s1"]')
        window.until(f"{INNER}?.querySelectorAll('.row').length >= 2", 15)
        window.until(
            "document.querySelector('#calls button')?.textContent.startsWith('Cancel wait')"
        )
        window.run("document.getElementById('say').value = 'be brief'")
        window.click("#steer")
        window.until("document.getElementById('say').value === ''")
        window.run(f"{INNER}.querySelector('.row .head').click()")
        free.set()
        assert turn.result(20).status == "completed"
        window.until(f"{INNER}?.body.textContent.includes('completed')", 15)
        window.until(f"{INNER}?.querySelector('.row.open')", 15)
        window.until("document.getElementById('cancel').disabled")
        assert "be brief" in [m.content for m in session.state.transcript]
        assert [c for c in window.complaints() if "favicon" not in c] == []
