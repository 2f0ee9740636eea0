"""A headless Chromium, asked over a pair of pipes: no port, no package, nothing to install but it.

The browser is whatever chromium is on PATH (Debian: apt install chromium).
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
from collections import deque
from pathlib import Path

NAMES = ("chromium", "chromium-browser", "google-chrome", "chrome")
DEADLINE_S = 60.0


def executable():
    """The path of a Chromium, None where there is none."""
    return next((found for name in NAMES if (found := shutil.which(name))), None)


class Browser:
    """One page; `console`, `requests` and `errors` have what happened in it."""

    def __init__(self, profile, *, dark=False, width=1280, height=900):
        self._to_read, self._to = os.pipe()
        self._from, self._from_write = os.pipe()
        self._number = 0
        self._waiting = b""
        self._events = deque()
        self.console, self.requests, self.errors = [], [], []
        self._start(profile, width, height)
        target = self.send("Target.createTarget", url="about:blank")["targetId"]
        attached = self.send("Target.attachToTarget", targetId=target, flatten=True)
        self.session = attached["sessionId"]
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.send(f"{domain}.enable")
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.send("Emulation.setEmulatedMedia", features=[scheme])

    session = None

    def _start(self, profile, width, height):
        """Starts it; it reads from its descriptor 3 and writes to its descriptor 4."""
        command = [
            executable(),
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--no-first-run",
            "--disable-extensions",
            "--disable-background-networking",
            "--remote-debugging-pipe",
            f"--user-data-dir={profile}",
            f"--window-size={width},{height}",
        ]
        shell = f'exec 3<&{self._to_read} 4>&{self._from_write}; exec "$@"'
        self.process = subprocess.Popen(
            ["bash", "-c", shell, "bash", *command],
            pass_fds=(self._to_read, self._from_write),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        os.close(self._to_read)
        os.close(self._from_write)

    def send(self, method, **parameters):
        """The answer to a command; events on the way are noted."""
        self._number += 1
        message = {"id": self._number, "method": method, "params": parameters}
        if self.session:
            message["sessionId"] = self.session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        until = time.monotonic() + DEADLINE_S
        while time.monotonic() < until:
            found = self._read()
            if found.get("id") == self._number:
                if "error" in found:
                    raise RuntimeError(f"{method}: {found['error']}")
                return found["result"]
            self._note(found)
        raise TimeoutError(method)

    def _read(self):
        while b"\0" not in self._waiting:
            more = os.read(self._from, 1 << 16)
            if not more:
                raise EOFError("the browser is gone")
            self._waiting += more
        message, self._waiting = self._waiting.split(b"\0", 1)
        return json.loads(message)

    def _note(self, event):
        method, told = event.get("method"), event.get("params", {})
        if method == "Runtime.consoleAPICalled":
            self.console.append(told["args"])
        elif method in ("Runtime.exceptionThrown", "Log.entryAdded"):
            self.errors.append(json.dumps(told))
        elif method == "Network.requestWillBeSent":
            self.requests.append(told["request"]["url"])
        self._events.append(method)

    def open(self, path):
        """Opens a file, until it was loaded and drawn."""
        self._events.clear()
        self.send("Page.navigate", url=Path(path).absolute().as_uri())
        while "Page.loadEventFired" not in self._events:
            self._note(self._read())
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))")

    def run(self, script):
        """The value of an expression in the page."""
        found = self.send(
            "Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True
        )
        if "exceptionDetails" in found:
            raise RuntimeError(json.dumps(found["exceptionDetails"]))
        return found["result"].get("value")

    def close(self):
        os.close(self._to)
        os.close(self._from)
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
