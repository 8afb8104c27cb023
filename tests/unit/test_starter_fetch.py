from __future__ import annotations

import socket
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from starter_kit import context, module

from runner import ToolError

fetch, guard, readable = (module("http-fetch", name) for name in ("skill", "guard", "readable"))

LOCAL = "127.0.0.1"
NOT_PUBLIC = [
    "http://127.0.0.1/",
    "http://127.1/",
    "http://2130706433/",
    "http://0x7f000001/",
    "http://017700000001/",
    "http://0/",
    "http://0.0.0.0/",
    "http://localhost/",
    "http://LOCALHOST./",
    "http://ⓛocalhost/",
    "http://１２７.0.0.1/",
    "http://[::1]/",
    "http://[::]/",
    "http://[::ffff:127.0.0.1]/",
    "http://[::ffff:169.254.169.254]/",
    "http://[::127.0.0.1]/",
    "http://[64:ff9b::7f00:1]/",
    "http://[64:ff9b:1::a00:1]/",
    "http://[2002:7f00:1::]/",
    "http://[2001:0:7f00:1::]/",
    "http://[fe80::1]/",
    "http://[fec0::1]/",
    "http://[fd00:ec2::254]/",
    "http://[ff02::1]/",
    "http://169.254.169.254/latest/meta-data/",
    "http://100.100.100.200/",
    "http://100.64.0.1/",
    "http://192.0.0.192/",
    "http://192.88.99.1/",
    "http://10.0.0.1/",
    "http://172.16.0.1/",
    "http://192.168.0.1/",
    "http://198.18.0.1/",
    "http://224.0.0.1/",
    "http://240.0.0.1/",
    "http://255.255.255.255/",
]
NOT_ADDRESSES = [
    "file:///etc/passwd",
    "ftp://example.org/",
    "gopher://127.0.0.1:6379/_x",
    "http:///nohost",
    "http://user:pass@example.org/",
    "http://example.org\\@127.0.0.1/",
    "http://exa mple.org/",
    "http://example.org:99999/",
    "http://example.org/\r\nHost: x",
    "example.org",
]


class Site(BaseHTTPRequestHandler):
    """A small site whose paths say what they answer."""

    def do_GET(self):
        self.server.seen.append((self.path, self.headers["host"]))
        status, headers, body = self.server.pages.get(self.path, (404, {}, b"nothing here"))
        self.send_response(status)
        headers = {"content-length": str(len(body)), **headers}
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args):
        pass


@pytest.fixture
def site():
    server = ThreadingHTTPServer((LOCAL, 0), Site)
    server.seen, server.pages = [], {}
    server.url = f"http://{LOCAL}:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield server
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def ctx(tmp_path):
    return context(tmp_path, scopes={"net": (LOCAL,)}, deadline=time.monotonic() + 20)


@pytest.mark.parametrize("url", NOT_PUBLIC)
def test_an_address_that_is_not_public_is_refused(url, tmp_path):
    with pytest.raises(ToolError, match=r"not a public address|no address found|not a host name"):
        fetch.fetch_url(url, context(tmp_path))


@pytest.mark.parametrize("url", NOT_ADDRESSES)
def test_what_is_no_web_address_is_refused(url, tmp_path):
    with pytest.raises(ToolError) as caught:
        fetch.fetch_url(url, context(tmp_path))
    assert not caught.value.retryable


@pytest.mark.parametrize("ip", ["1.1.1.1", "93.184.216.34", "2606:4700::1111", "::ffff:1.1.1.1"])
def test_public_addresses_are_public(ip):
    assert guard.is_public(ip)


def test_one_private_address_among_public_ones_is_enough_to_refuse():
    def resolve(host, port, **_):
        return [(0, 0, 0, "", (ip, port)) for ip in ("1.1.1.1", "10.0.0.1")]

    with pytest.raises(ToolError, match=r"leads to 10\.0\.0\.1"):
        guard.check("http://two.example/", (), resolve)


def test_scopes_name_hosts_ports_and_suffixes():
    assert guard.is_named("wiki.corp", 80, ["wiki.corp"])
    assert guard.is_named("wiki.corp", 8080, ["WIKI.corp:8080"])
    assert guard.is_named("wiki.corp", 80, ["*.corp"])
    assert guard.is_named("::1", 80, ["[::1]:80"])
    assert not guard.is_named("wiki.corp", 80, ["wiki.corp:8080", "corp", "*.rp", "*"])
    assert not guard.is_named("evilcorp", 80, ["*.corp"])


def test_the_name_is_looked_up_once_and_the_connection_goes_there(site, tmp_path):
    answers = [LOCAL, "169.254.169.254"]

    def resolve(host, port, **_):
        return [(0, 0, 0, "", (answers.pop(0), port))]

    site.pages["/"] = (200, {"content-type": "text/plain"}, b"pinned")
    ctx = context(tmp_path, scopes={"net": ("pinned.example",)})
    url = f"http://pinned.example:{site.server_port}/"
    _, answer = fetch.follow(url, ctx, resolve)
    assert answer.data == b"pinned"
    assert answers == ["169.254.169.254"]
    assert site.seen == [("/", f"pinned.example:{site.server_port}")]


def test_a_private_host_is_fetched_when_a_scope_names_it(site, ctx):
    site.pages["/a?b=ü"] = site.pages["/a?b=%C3%BC"] = (
        200,
        {"content-type": "text/plain"},
        b"hello",
    )
    text = fetch.fetch_url(f"{site.url}/a?b=ü", ctx)
    assert text.splitlines()[-1] == "hello"
    assert "(200, text/plain)" in text.splitlines()[0]


@pytest.mark.parametrize(
    "place", ["http://169.254.169.254/latest/meta-data/", "file:///etc/passwd", "//localhost/"]
)
def test_a_redirect_is_checked_like_an_address(site, ctx, place):
    site.pages["/"] = (302, {"location": place}, b"")
    with pytest.raises(ToolError, match=r"not a public address|must begin with http"):
        fetch.fetch_url(site.url + "/", ctx)


def test_redirects_are_followed_five_times_at_most(site, ctx):
    for number in range(7):
        site.pages[f"/{number}"] = (302, {"location": f"/{number + 1}"}, b"")
    site.pages["/7"] = (200, {"content-type": "text/plain"}, b"there")
    assert fetch.fetch_url(f"{site.url}/2", ctx).startswith(f"{site.url}/7 (200")
    with pytest.raises(ToolError, match="more than 5 redirects"):
        fetch.fetch_url(f"{site.url}/1", ctx)


@pytest.mark.parametrize(
    ("status", "retryable"), [(404, False), (403, False), (429, True), (503, True)]
)
def test_a_refusal_says_whether_it_may_work_later(site, ctx, status, retryable):
    site.pages["/"] = (status, {"retry-after": "7", "content-type": "text/plain"}, b"go away")
    with pytest.raises(ToolError, match=rf"{status} .*wait 7: go away") as caught:
        fetch.fetch_url(site.url + "/", ctx)
    assert caught.value.retryable is retryable


def test_a_dead_port_and_a_broken_answer_may_work_later(site, ctx):
    with socket.create_server((LOCAL, 0)) as taken:
        port = taken.getsockname()[1]
    site.pages["/short"] = (200, {"content-length": "99", "content-type": "text/plain"}, b"half")
    for url in (f"http://{LOCAL}:{port}/", f"{site.url}/short"):
        with pytest.raises(ToolError, match="could not be reached or broke off") as caught:
            fetch.fetch_url(url, ctx)
        assert caught.value.retryable


def test_a_server_that_never_answers_ends_in_time(tmp_path):
    with socket.create_server((LOCAL, 0)) as silent:
        ctx = context(tmp_path, scopes={"net": (LOCAL,)}, deadline=time.monotonic() + 1.0)
        with pytest.raises(ToolError, match="timed out"):
            fetch.fetch_url(f"http://{LOCAL}:{silent.getsockname()[1]}/", ctx)
        assert ctx.remaining() > 0


def test_a_page_is_given_as_readable_text(site, ctx):
    page = (
        "<!doctype html><html><head><title>Price list</title><style>p {}</style></head>"
        "<body><script>alert(1)</script><h1>Tea &amp; coffee</h1><ul><li>Green<li>Black</ul>"
        "<table><tr><td>Earl</td><td>3 €</td></tr></table><p>Bye<br>now</body></html>"
    )
    site.pages["/"] = (
        200,
        {"content-type": "text/html; charset=iso-8859-15"},
        page.encode("iso-8859-15"),
    )
    text = fetch.fetch_url(site.url + "/", ctx)
    for line in ("Price list", "Tea & coffee", "- Green", "- Black", "| Earl | 3 €", "Bye", "now"):
        assert line in text.splitlines()
    assert "alert" not in text


def test_large_and_binary_answers_are_bounded_and_described(site, ctx):
    site.pages["/big"] = (200, {"content-type": "text/plain"}, b"x" * 2_500_000)
    site.pages["/img"] = (200, {"content-type": "image/png"}, b"\x89PNG\0")
    site.pages["/zip"] = (
        200,
        {"content-type": "text/html", "content-encoding": "gzip"},
        b"\x1f\x8b",
    )
    big = fetch.fetch_url(f"{site.url}/big", ctx, 1000)
    assert "only the first 2,000,000 bytes" in big
    assert "the first 1,000 of 2,000,000 characters" in big
    assert len(big) < 1300
    assert "[binary content: image/png, 5 bytes" in fetch.fetch_url(f"{site.url}/img", ctx)
    assert "encoding gzip" in fetch.fetch_url(f"{site.url}/zip", ctx)


def test_json_stays_as_it_is(site, ctx):
    site.pages["/"] = (200, {"content-type": "application/problem+json"}, b'{"a": [1, 2]}')
    assert fetch.fetch_url(site.url + "/", ctx).endswith('\n{"a": [1, 2]}')
