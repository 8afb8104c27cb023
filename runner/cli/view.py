"""`runner view`: sessions as pages in the browser, followed while they run."""

from __future__ import annotations

import threading

import click

from ..errors import ConfigError, RecordError, SessionError
from ..record.trajectory import file_of
from .common import Common
from .options import command


@command("runner view", "runner view SESSION --open")
@click.argument("session", required=False)
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Default: any free one.")
@click.option("--open", "browse", is_flag=True, help="Open it in the browser.")
def view(common: Common, session: str | None, port: int, browse: bool) -> None:
    """Show sessions in the browser. The address is printed on stdout; Ctrl-C ends it.

    Only this machine can reach it, and only with the token in the address. A session that runs in
    another process can be looked at, not changed; runner chat --view has the buttons.
    """
    from ..view import View  # a web server is not needed for --help

    state = common.load().paths.state
    if session is not None:
        _check(common, session)
    try:
        server = View(state, port=port)
    except OSError as error:
        raise RecordError(f"port {port} cannot be used ({error.strerror}); try another") from error
    address = server.url_of(session) if session else server.url
    server.start()
    common.console.answer(address)
    if browse:
        import webbrowser

        webbrowser.open(address)
    try:
        threading.Event().wait()
    except KeyboardInterrupt:
        common.console.say("\n")
    finally:
        server.close()


def _check(common: Common, session: str) -> None:
    state = common.load(warn=False).paths.state
    try:
        path = file_of(state, session)
    except SessionError as error:
        raise ConfigError(str(error)) from error
    if not path.is_file():
        raise SessionError(f"no session {session!r} in {state}; see: runner sessions list")
