"""A headless Chromium that a test talks to over the DevTools protocol; Python's standard library alone.

with Browser("/usr/bin/chromium", 1280, 900) as page:
    page.open("file:///tmp/page.html")
    page.value("document.title")
"""
import base64
import json
import os
import shutil
import socket
import struct
import subprocess
import tempfile
import time
import urllib.request


class DoesNotStart(RuntimeError):
    pass


class Browser:
    def __init__(self, program, width, height):
        self.size = (width, height)
        self.folder = tempfile.mkdtemp(prefix="browser-")
        self.program = program
        self.count = 0
        self.problems = []  # exceptions and errors of the page, and requests that it made

    def __enter__(self):
        command = [self.program, "--headless=new", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--no-first-run",
                   "--disable-background-networking", "--host-resolver-rules=MAP * ~NOTFOUND", "--remote-debugging-port=0",
                   f"--user-data-dir={self.folder}/profile", f"--window-size={self.size[0]},{self.size[1]}", "about:blank"]
        self.log = open(f"{self.folder}/log", "w")
        self.process = subprocess.Popen(command, stdout=self.log, stderr=self.log,
                                        env={**os.environ, "HOME": self.folder})
        self.connect()
        for domain in ("Page", "Runtime", "Network", "Log"):
            self.call(domain + ".enable")
        self.resize(*self.size)
        return self

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.log.close()
        shutil.rmtree(self.folder, ignore_errors=True)

    # ---- the connection: a WebSocket (RFC 6455), text frames alone ----

    def connect(self):
        port_file = f"{self.folder}/profile/DevToolsActivePort"
        for _ in range(300):
            if os.path.exists(port_file) and open(port_file).read().count("\n") >= 1:
                break
            if self.process.poll() is not None:
                raise DoesNotStart("the browser does not start: " + open(f"{self.folder}/log").read()[-500:])
            time.sleep(0.1)
        port = int(open(port_file).read().split()[0])
        pages = json.load(urllib.request.urlopen(f"http://127.0.0.1:{port}/json/list"))
        path = next(each for each in pages if each["type"] == "page")["webSocketDebuggerUrl"].split(str(port), 1)[1]
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=60)
        key = base64.b64encode(os.urandom(16)).decode()
        self.socket.sendall(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nUpgrade: websocket\r\nConnection: Upgrade\r\n"
                            f"Sec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += self.socket.recv(4096)
        self.rest = answer.split(b"\r\n\r\n", 1)[1]

    def read(self, length):
        while len(self.rest) < length:
            more = self.socket.recv(1 << 20)
            if not more:
                raise RuntimeError("the browser has ended")
            self.rest += more
        part, self.rest = self.rest[:length], self.rest[length:]
        return part

    def receive(self):
        text = b""
        while True:
            first, second = self.read(2)
            length = second & 127
            if length == 126:
                length = struct.unpack(">H", self.read(2))[0]
            elif length == 127:
                length = struct.unpack(">Q", self.read(8))[0]
            part = self.read(length)
            if first & 15 in (0, 1):
                text += part
            if first & 128 and first & 15 in (0, 1):
                return json.loads(text)

    def send(self, text):
        data = text.encode()
        mask = os.urandom(4)
        if len(data) < 126:
            head = struct.pack(">BB", 129, 128 | len(data))
        elif len(data) < 65536:
            head = struct.pack(">BBH", 129, 254, len(data))
        else:
            head = struct.pack(">BBQ", 129, 255, len(data))
        self.socket.sendall(head + mask + bytes(byte ^ mask[i % 4] for i, byte in enumerate(data)))

    def note(self, event):
        name, of = event.get("method"), event.get("params", {})
        if name == "Runtime.exceptionThrown":
            self.problems.append(of["exceptionDetails"].get("exception", {}).get("description", str(of)))
        elif name == "Log.entryAdded" and of["entry"]["level"] == "error":
            self.problems.append(of["entry"]["text"])
        elif name == "Network.requestWillBeSent" and not of["request"]["url"].startswith(("file:", "data:", "blob:")):
            self.problems.append("asks for " + of["request"]["url"])

    def call(self, method, **parameters):
        self.count += 1
        self.send(json.dumps({"id": self.count, "method": method, "params": parameters}))
        while True:
            event = self.receive()
            if event.get("id") == self.count:
                if "error" in event:
                    raise RuntimeError(f"{method}: {event['error']['message']}")
                return event["result"]
            self.note(event)

    # ---- the page ----

    def resize(self, width, height, touch=False):
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=touch)
        self.call("Emulation.setTouchEmulationEnabled", enabled=touch)

    def dark(self, on):
        value = "dark" if on else "light"
        self.call("Emulation.setEmulatedMedia", features=[{"name": "prefers-color-scheme", "value": value}])

    def open(self, url, ready="document.documentElement?.dataset.ready === 'yes'"):
        self.call("Page.navigate", url="about:blank")
        self.call("Page.navigate", url=url)
        self.wait(ready)

    def value(self, expression):
        answer = self.call("Runtime.evaluate", expression=expression, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in answer:
            raise RuntimeError(f"{expression}: {answer['exceptionDetails']}")
        return answer["result"].get("value")

    def wait(self, expression, seconds=30):
        until = time.monotonic() + seconds
        while not self.value(f"!!({expression})"):
            if time.monotonic() > until:
                raise RuntimeError(f"waited {seconds} s for {expression}; {self.problems}")
            time.sleep(0.02)

    def settle(self):
        """Waits until the requested page has been drawn."""
        self.value("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))")

    def key(self, key, shift=False):
        text = key if len(key) == 1 else "\r" if key == "Enter" else ""
        codes = {"Enter": 13, "Escape": 27, "Home": 36, "ArrowLeft": 37, "ArrowUp": 38, "ArrowRight": 39, "ArrowDown": 40}
        options = {"key": key, "modifiers": 8 if shift else 0}
        if key in codes:
            options |= {"windowsVirtualKeyCode": codes[key], "code": key}
        if text and not shift:
            options["text"] = text
        self.call("Input.dispatchKeyEvent", type="keyDown", **options)
        self.call("Input.dispatchKeyEvent", type="keyUp", key=key)
        self.settle()

    def type(self, text):
        self.call("Input.insertText", text=text)

    def mouse(self, kind, x, y, **more):
        self.call("Input.dispatchMouseEvent", type=kind, x=x, y=y, **more)

    def click(self, x, y):
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, button="left", clickCount=1, buttons=1)
        self.mouse("mouseReleased", x, y, button="left", clickCount=1)
        self.settle()

    def drag(self, x, y, to_x, to_y, steps=8):
        self.mouse("mouseMoved", x, y)
        self.mouse("mousePressed", x, y, button="left", clickCount=1, buttons=1)
        for i in range(1, steps + 1):
            self.mouse("mouseMoved", x + (to_x - x) * i / steps, y + (to_y - y) * i / steps, button="left", buttons=1)
        self.mouse("mouseReleased", to_x, to_y, button="left", clickCount=1)
        self.settle()

    def wheel(self, x, y, delta_y, control=False):
        self.mouse("mouseWheel", x, y, deltaX=0, deltaY=delta_y, modifiers=2 if control else 0)
        self.settle()

    def touch(self, kind, points):
        self.call("Input.dispatchTouchEvent", type=kind,
                  touchPoints=[{"x": x, "y": y, "id": i} for i, (x, y) in enumerate(points)])

    def picture(self, path, whole=False):
        if whole:
            height = self.value("document.documentElement.scrollHeight")
            self.call("Emulation.setDeviceMetricsOverride", width=self.value("innerWidth"), height=height,
                      deviceScaleFactor=1, mobile=False)
            self.settle()
        with open(path, "wb") as file:
            file.write(base64.b64decode(self.call("Page.captureScreenshot", format="png")["data"]))
