"""A web server for a folder, as object stores are: with ranges and ETags."""

from __future__ import annotations

import contextlib
import functools
import http.server
import threading
from pathlib import Path
from typing import Any, Callable, Iterator


class Ranged(http.server.SimpleHTTPRequestHandler):
    """Answers GET and HEAD; before it answers for a shard it calls ``wait``."""

    protocol_version = "HTTP/1.1"

    def __init__(self, wait: Callable[[], object], *args: Any, **options: Any) -> None:
        self.wait = wait
        super().__init__(*args, **options)

    def do_GET(self) -> None:
        if ".tar" in self.path:
            self.wait()
        data = (Path(self.directory) / self.path.lstrip("/")).read_bytes()
        first, last = 0, len(data) - 1
        if ranged := self.headers.get("Range"):
            a, b = ranged.split("=")[1].split("-")
            first, last = int(a), min(int(b or last), last)
        self.send_response(206 if ranged else 200)
        self.send_header("Content-Length", str(last + 1 - first))
        self.send_header("ETag", f'"{len(data)}"')
        self.send_header("Accept-Ranges", "bytes")
        if ranged:
            self.send_header("Content-Range", f"bytes {first}-{last}/{len(data)}")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(data[first : last + 1])

    do_HEAD = do_GET

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def served(folder: Path, wait: Callable[[], object]) -> Iterator[str]:
    """The address of a folder on a web server that calls ``wait`` before it answers for a shard."""
    handler = functools.partial(Ranged, wait, directory=str(folder))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        server.handle_error = lambda *_: None  # type: ignore[method-assign]
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
