"""A headless browser for tests: Chromium through its own driver, asked over plain HTTP."""

from __future__ import annotations

import json
import shutil
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Self

FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run",
    "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--disable-dev-shm-usage", "--window-size=1280,900",
)  # fmt: skip
_ELEMENT = "element-6066-11e4-a52e-4f735466cecf"
KEYS = {"Enter": "\ue007", "Escape": "\ue00c", "Down": "\ue015", "Up": "\ue013"}


def missing() -> str:
    """Why there is no browser here; empty when there is one."""
    absent = [name for name in ("chromium", "chromedriver") if shutil.which(name) is None]
    return f"{' and '.join(absent)} not installed" if absent else ""


class Browser:
    """One window. Use as a context manager; everything ends with it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._base = ""
        self._session = ""
        self._driver: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self._driver = subprocess.Popen(
            ["chromedriver", f"--port={port}"],
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        self._base = f"http://127.0.0.1:{port}"
        self._wait()
        options = {
            "binary": shutil.which("chromium"),
            "args": [*FLAGS, f"--user-data-dir={self._folder / 'profile'}"],
        }
        wanted = {"goog:chromeOptions": options, "goog:loggingPrefs": {"browser": "ALL"}}
        made = self._ask("POST", "/session", {"capabilities": {"alwaysMatch": wanted}})
        self._session = made["sessionId"]
        return self

    def __exit__(self, *error: object) -> None:
        try:
            self._ask("DELETE", f"/session/{self._session}")
        finally:
            assert self._driver is not None
            self._driver.terminate()
            self._driver.wait(10)

    def open(self, page: Path) -> None:
        """Loads a file and waits until it has loaded."""
        self._post("url", {"url": page.as_uri()})

    def run(self, script: str, *arguments: Any) -> Any:
        """What the body of a function returns in the page."""
        return self._post("execute/sync", {"script": script, "args": list(arguments)})

    def press(self, *keys: str) -> None:
        """Types keys, wherever the focus is."""
        strokes = []
        for key in keys:
            value = KEYS.get(key, key)
            strokes += [{"type": "keyDown", "value": value}, {"type": "keyUp", "value": value}]
        self._post("actions", {"actions": [{"type": "key", "id": "keys", "actions": strokes}]})

    def click(self, selector: str) -> None:
        """Clicks the first element that the selector finds."""
        found = self._post("element", {"using": "css selector", "value": selector})
        self._post(f"element/{found[_ELEMENT]}/click", {})

    def prefer(self, scheme: str) -> None:
        """Makes the system light or dark."""
        feature = {"name": "prefers-color-scheme", "value": scheme}
        command = {"cmd": "Emulation.setEmulatedMedia", "params": {"features": [feature]}}
        self._post("goog/cdp/execute", command)

    def complaints(self) -> list[str]:
        """What the console said since it was last asked, refused loads included."""
        return [entry["message"] for entry in self._post("se/log", {"type": "browser"})]

    def until(self, script: str, seconds: float = 5.0) -> None:
        """Waits until the expression is true in the page."""
        deadline = time.monotonic() + seconds
        while not self.run(f"return Boolean({script})"):
            assert time.monotonic() < deadline, f"never came true: {script}"

    def _post(self, what: str, body: dict[str, Any]) -> Any:
        return self._ask("POST", f"/session/{self._session}/{what}", body)

    def _ask(self, method: str, path: str, body: dict[str, Any] | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self._base + path, data, method=method)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return json.load(answer)["value"]
        except urllib.error.HTTPError as error:
            with error:
                raise AssertionError(error.read().decode()[:1000]) from error

    def _wait(self) -> None:
        deadline = time.monotonic() + 20
        while True:
            try:
                if self._ask("GET", "/status")["ready"]:
                    return
            except OSError:
                pass
            assert time.monotonic() < deadline, "the driver did not start"
            time.sleep(0.05)
