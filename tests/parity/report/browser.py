"""Chromium without a window, spoken to through a pipe (its DevTools protocol). Python's standard library is enough."""

import base64
import fcntl
import json
import os
import shutil
import subprocess
import tempfile
import time

FLAGS = [
    "--headless=new",
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--no-first-run",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
    "--hide-scrollbars",
    "--force-color-profile=srgb",
    "--remote-debugging-pipe",
]


def program():
    """Its path, or None."""
    return shutil.which("chromium")


class Browser:
    """One page at a time. What the page complains about is in `errors`, what it asked for in `requests`."""

    def __init__(self):
        self.profile = tempfile.mkdtemp(prefix="rein-browser-")
        to_browser, self.out = os.pipe()
        self.back, from_browser = os.pipe()

        def descriptors():  # it reads commands from 3 and answers on 4
            out, back = fcntl.fcntl(to_browser, fcntl.F_DUPFD, 64), fcntl.fcntl(from_browser, fcntl.F_DUPFD, 64)
            os.dup2(out, 3), os.dup2(back, 4), os.close(out), os.close(back)

        command = [program(), *FLAGS, f"--user-data-dir={self.profile}", "about:blank"]
        with open(os.path.join(self.profile, "stderr"), "wb") as log:
            self.process = subprocess.Popen(command, close_fds=False, preexec_fn=descriptors, stdout=log, stderr=log)
        os.close(to_browser)
        os.close(from_browser)
        self.waiting, self.number, self.session = b"", 0, None
        self.errors, self.requests, self.events = [], [], []
        (page,) = [t for t in self.call("Target.getTargets")["targetInfos"] if t["type"] == "page"]
        self.session = self.call("Target.attachToTarget", targetId=page["targetId"], flatten=True)["sessionId"]
        for domain in ("Page", "Runtime", "Log", "Network"):
            self.call(f"{domain}.enable")

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.session = None
        try:
            self.call("Browser.close")
        except (EOFError, BrokenPipeError):
            pass
        try:
            self.process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        os.close(self.out)
        os.close(self.back)
        shutil.rmtree(self.profile, ignore_errors=True)

    def message(self):
        """The next one: JSON up to a NUL."""
        while b"\0" not in self.waiting:
            piece = os.read(self.back, 1 << 20)
            if not piece:
                raise EOFError("the browser is gone")
            self.waiting += piece
        text, self.waiting = self.waiting.split(b"\0", 1)
        return json.loads(text)

    def take(self, message):
        method, said = message.get("method"), message.get("params", {})
        if method == "Runtime.exceptionThrown":
            details = said["exceptionDetails"]
            self.errors.append(details.get("exception", {}).get("description") or details["text"])
        elif method == "Runtime.consoleAPICalled" and said["type"] in ("error", "warning", "assert"):
            self.errors.append(" ".join(str(a.get("value", a.get("description"))) for a in said["args"]))
        elif method == "Log.entryAdded" and said["entry"]["level"] in ("error", "warning"):
            self.errors.append(said["entry"]["text"])
        elif method == "Network.requestWillBeSent":
            self.requests.append(said["request"]["url"])
        self.events.append(method)

    def call(self, method, **parameters):
        self.number += 1
        said = {"id": self.number, "method": method, "params": parameters}
        if self.session:
            said["sessionId"] = self.session
        os.write(self.out, json.dumps(said).encode() + b"\0")
        while True:
            message = self.message()
            if message.get("id") == self.number:
                assert "error" not in message, message["error"]
                return message["result"]
            self.take(message)

    def open(self, page, width=1280, height=900, dark=False, scale=1, motion=True):
        """A file, or an address."""
        self.errors, self.requests, self.events = [], [], []
        size = {"width": width, "height": height, "deviceScaleFactor": scale, "mobile": width < 600}
        self.call("Emulation.setDeviceMetricsOverride", **size)
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        moves = {"name": "prefers-reduced-motion", "value": "no-preference" if motion else "reduce"}
        self.call("Emulation.setEmulatedMedia", features=[scheme, moves])
        url = page if str(page).startswith("http") else f"file://{os.path.abspath(page)}"
        self.call("Page.navigate", url=url)
        while "Page.loadEventFired" not in self.events:
            self.take(self.message())
        self.settle()

    def leave(self):
        """Ends the scripts of the page."""
        self.events = []
        self.call("Page.navigate", url="about:blank")
        while "Page.loadEventFired" not in self.events:
            self.take(self.message())

    def settle(self):
        """Until everything that was to be drawn is."""
        frame = "new Promise(done => requestAnimationFrame(() => requestAnimationFrame(done)))"
        for _ in range(2):
            self.evaluate(frame)

    def evaluate(self, expression):
        result = self.call("Runtime.evaluate", expression=expression, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    def wait(self, expression, seconds=20):
        """Until it is true."""
        end = time.time() + seconds
        while not self.evaluate(f"Boolean({expression})"):
            assert time.time() < end, f"{expression} is not true after {seconds} s"
            time.sleep(0.05)

    def press(self, key, text=""):
        code = {"Enter": 13, "Tab": 9, "ArrowRight": 39, "Escape": 27}[key]
        for kind in ("keyDown", "keyUp"):
            self.call(
                "Input.dispatchKeyEvent",
                type=kind,
                key=key,
                code=key,
                windowsVirtualKeyCode=code,
                text=text if kind == "keyDown" else "",
            )
        self.settle()

    def write(self, selector, text):
        self.evaluate(f"document.querySelector({json.dumps(selector)}).focus()")
        self.call("Input.insertText", text=text)

    def move(self, x, y):
        self.call("Input.dispatchMouseEvent", type="mouseMoved", x=x, y=y)
        self.settle()

    def texts(self, selector, which="innerText"):
        """Those of all elements that fit."""
        return self.evaluate(f"[...document.querySelectorAll({json.dumps(selector)})].map(e => e.{which})")

    def box(self, selector, index=0):
        """Where the element of that index is, on the screen."""
        element = f"document.querySelectorAll({json.dumps(selector)})[{index}]"
        return self.evaluate(
            f"(({{x, y, width, height}}) => ({{x, y, width, height}}))({element}.getBoundingClientRect())"
        )

    def screenshot(self, selector=None, index=0):
        """PNG of the whole page, or of an element."""
        if selector:
            clip, (x, y) = self.box(selector, index), self.evaluate("[scrollX, scrollY]")
            clip = {**clip, "x": clip["x"] + x, "y": clip["y"] + y}
        else:
            clip = {**self.call("Page.getLayoutMetrics")["cssContentSize"], "x": 0, "y": 0}
        how = {"format": "png", "optimizeForSpeed": True, "captureBeyondViewport": True}
        return base64.b64decode(self.call("Page.captureScreenshot", clip={**clip, "scale": 1}, **how)["data"])


if __name__ == "__main__":  # browser.py PAGE PNG [WIDTH [dark]]: to look at a page
    import sys

    with Browser() as browser:
        began = time.time()
        browser.open(sys.argv[1], width=int(sys.argv[3]) if len(sys.argv) > 3 else 1280, dark="dark" in sys.argv)
        with open(sys.argv[2], "wb") as file:
            file.write(browser.screenshot())
        print(f"{time.time() - began:.1f} s", *browser.errors, sep="\n")
