"""The browser that looks at pages, where there is one."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")
FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run "
    "--disable-background-networking --disable-component-update --disable-sync"
).split()


class Browser:
    """One page of a browser, driven by the DevTools protocol over a pair of pipes."""

    def __init__(self, commands: int, answers: int) -> None:
        self._commands, self._answers = commands, answers
        self._number, self._buffer, self._session = 0, b"", ""
        target = self.ask("Target.createTarget", url="about:blank")["targetId"]
        found = self.ask("Target.attachToTarget", targetId=target, flatten=True)
        self._session = found["sessionId"]

    def ask(self, method: str, **parameters: Any) -> dict[str, Any]:
        """Send a command and return its result."""
        self._number += 1
        command = {"id": self._number, "method": method, "params": parameters}
        if self._session:
            command["sessionId"] = self._session
        os.write(self._commands, json.dumps(command).encode() + b"\0")
        while True:
            while b"\0" not in self._buffer:
                more = os.read(self._answers, 1 << 16)
                assert more, "the browser has ended"
                self._buffer += more
            text, _, self._buffer = self._buffer.partition(b"\0")
            answer = json.loads(text)
            if answer.get("id") == self._number:
                assert "error" not in answer, answer
                return answer["result"]

    def look(self, width: int, dark: bool) -> None:
        """Make the window so wide, and the system's colours light or dark."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.ask("Emulation.setEmulatedMedia", features=[scheme])
        self.ask(
            "Emulation.setDeviceMetricsOverride",
            width=width, height=900, deviceScaleFactor=1, mobile=width < 500,
        )  # fmt: skip

    def open(self, address: str) -> None:
        """Open a page and wait until it is loaded."""
        self.ask("Page.navigate", url=address)
        self.wait("document.readyState == 'complete'")

    def run(self, script: str) -> Any:
        """Return what the script gives, awaited if it is a promise."""
        found = self.ask(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        assert "exceptionDetails" not in found, found
        return found["result"].get("value")

    def wait(self, condition: str) -> None:
        """Wait until the condition holds, for half a minute at most."""
        found = self.run(
            f"(async () => {{ for (let n = 0; n < 300; n++) {{ if ({condition}) return true;"
            " await new Promise((r) => setTimeout(r, 100)); } return false; })()"
        )
        assert found, condition

    def screenshot(self, path: Path) -> None:
        """Write the whole page as a PNG."""
        import base64

        shot = self.ask("Page.captureScreenshot", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(shot["data"]))


@contextmanager
def browser(profile: Path) -> Generator[Browser]:
    """Start the browser, and end it."""
    to_read, to_write = os.pipe()
    from_read, from_write = os.pipe()

    def connect() -> None:
        """Chromium reads commands from descriptor 3 and writes answers to 4."""
        high = [fcntl.fcntl(number, fcntl.F_DUPFD, 10) for number in (to_read, from_write)]
        os.dup2(high[0], 3)
        os.dup2(high[1], 4)

    command = [str(CHROMIUM), *FLAGS, f"--user-data-dir={profile}", "--remote-debugging-pipe",
               "--allow-file-access-from-files"]  # fmt: skip
    process = subprocess.Popen(
        command, preexec_fn=connect, pass_fds=(3, 4),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(to_read), os.close(from_write)
    try:
        yield Browser(to_write, from_read)
    finally:
        process.terminate()
        process.wait(30)
        os.close(to_write), os.close(from_read)
