"""Debian's Chromium without a window, driven over its DevTools pipe."""

from __future__ import annotations

import json
import os
import select
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

_DOMAINS = ("Page", "Runtime", "Log", "Network")
_PATIENCE = 60  # seconds without a word


def missing() -> str:
    """Return why no page can be tried, empty where it can."""
    return "" if shutil.which("chromium") else "no chromium"


class Page:
    """An open page, and all that it has logged and asked for since it was opened."""

    def __init__(self, to: IO[bytes], of: IO[bytes]) -> None:
        self._to, self._of = to, of
        self._calls = 0
        self._unread = b""
        self._session: dict[str, str] = {}
        self.logged: list[Any] = []
        self.requests: list[str] = []
        target = self.call("Target.createTarget", url="about:blank")["targetId"]
        attached = self.call("Target.attachToTarget", targetId=target, flatten=True)
        self._session = {"sessionId": attached["sessionId"]}
        for domain in _DOMAINS:
            self.call(f"{domain}.enable")

    def call(self, method: str, **parameters: Any) -> Any:
        """Call a method of the DevTools protocol and return its result."""
        self._calls += 1
        call = {"id": self._calls, "method": method, "params": parameters, **self._session}
        self._to.write(json.dumps(call).encode() + b"\0")
        self._to.flush()
        while (told := self._read()).get("id") != self._calls:
            pass
        assert "error" not in told, told
        return told["result"]

    def open(self, url: str) -> None:
        """Go to `url` and wait until it is loaded."""
        self.call("Page.navigate", url=url)
        while self._read().get("method") != "Page.loadEventFired":
            pass

    def run(self, script: str) -> Any:
        """Return what a script evaluates to; what it throws fails the test."""
        done = self.call(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in done, done
        return done["result"].get("value")

    def _read(self) -> dict[str, Any]:
        while b"\0" not in self._unread:
            assert select.select([self._of], [], [], _PATIENCE)[0], "chromium does not answer"
            got = os.read(self._of.fileno(), 1 << 16)
            assert got, "chromium ended"
            self._unread += got
        told, _, self._unread = self._unread.partition(b"\0")
        message: dict[str, Any] = json.loads(told)
        match message.get("method"):
            case "Network.requestWillBeSent":
                self.requests.append(message["params"]["request"]["url"])
            case "Runtime.consoleAPICalled" | "Runtime.exceptionThrown" | "Log.entryAdded":
                self.logged.append(message["params"])
        return message


@contextmanager
def page(folder: Path) -> Iterator[Page]:
    """Open an empty page; the browser keeps what it keeps in `folder`."""
    command = ["chromium", "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"]
    command += ["--remote-debugging-pipe", f"--user-data-dir={folder}"]
    theirs_in, ours_out = os.pipe()
    ours_in, theirs_out = os.pipe()
    # Chromium reads from descriptor 3 and writes to 4. Not sh: dash knows no descriptor above 9.
    shell = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'
    with subprocess.Popen(
        ["bash", "-c", shell, "bash", *command],
        pass_fds=(theirs_in, theirs_out),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        os.close(theirs_in)
        os.close(theirs_out)
        with os.fdopen(ours_out, "wb") as to, os.fdopen(ours_in, "rb") as of:
            try:
                yield Page(to, of)
            finally:
                process.kill()
