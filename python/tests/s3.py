"""The part of S3 that the store uses, in memory, with requests that fail."""

from __future__ import annotations

import contextlib
import hashlib
import http.server
import threading
import urllib.parse
from typing import Any, Dict, Iterator, List, Tuple
from xml.sax.saxutils import escape


class Server(http.server.ThreadingHTTPServer):
    """A bucket named "bucket". The write with the number ``fail`` is refused: before it takes
    effect, or after it."""

    daemon_threads = True

    def __init__(self) -> None:
        self.objects: Dict[str, Tuple[bytes, str]] = {}
        self.uploads: Dict[str, Dict[int, bytes]] = {}
        self.lock = threading.Lock()
        self.begin()
        self.seen: List[str] = []  # the targets of all requests
        super().__init__(("127.0.0.1", 0), _Handler)

    def begin(self, fail: int = -1, after: bool = False) -> None:
        """Counts writes from 0 again."""
        self.writes, self.fail, self.after, self.fired = 0, fail, after, False

    def url(self, prefix: str) -> str:
        """The address of a folder of the bucket."""
        return f"s3://bucket/{prefix}?endpoint=http://127.0.0.1:{self.server_port}&path_style=true&region=us-east-1"


class _Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Server

    def _body(self) -> bytes:
        data = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if "aws-chunked" not in self.headers.get("Content-Encoding", ""):
            return data
        out, at = b"", 0
        while True:
            head, _, _ = data[at:].partition(b"\r\n")
            size = int(head.partition(b";")[0], 16)
            if size == 0:
                return out
            at += len(head) + 2
            out += data[at : at + size]
            at += size + 2

    def _answer(self, status: int, body: bytes = b"", **headers: str) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        if "Content_Length" not in headers:
            self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(b"" if self.command == "HEAD" else body)

    def _refuse(self, status: int, code: str) -> None:
        self._answer(status, f"<Error><Code>{code}</Code><Message>{code}</Message></Error>".encode())

    def _serve(self) -> None:
        split = urllib.parse.urlsplit(self.path)
        key, query = urllib.parse.unquote(split.path).removeprefix("/bucket").lstrip("/"), urllib.parse.parse_qs(split.query, True)
        body, server = self._body(), self.server
        with server.lock:
            server.seen.append(self.path)
            failing = False
            if self.command in ("PUT", "POST") or (self.command == "DELETE" and "uploadId" not in query):
                failing = server.writes == server.fail
                server.writes += 1
            if failing:
                server.fired = True
                if server.after:
                    self._write(key, query, body, silent=True)
                self._refuse(403, "AccessDenied")
            elif self.command in ("PUT", "POST", "DELETE"):
                self._write(key, query, body)
            elif not key:
                self._list(query)
            else:
                self._get(key)

    def _write(self, key: str, query: Dict[str, List[str]], body: bytes, silent: bool = False) -> None:
        objects, uploads = self.server.objects, self.server.uploads
        status, out, headers = 200, b"", {}
        if self.command == "POST" and "uploads" in query:
            number = str(len(uploads))
            uploads[number] = {}
            out = f"<InitiateMultipartUploadResult><UploadId>{number}</UploadId></InitiateMultipartUploadResult>".encode()
        elif self.command == "PUT" and "uploadId" in query:
            uploads[query["uploadId"][0]][int(query["partNumber"][0])] = body
            headers["ETag"] = f'"{hashlib.md5(body).hexdigest()}"'
        elif self.command == "DELETE":
            status = 204
            if "uploadId" not in query:
                objects.pop(key, None)
        else:
            old = objects.get(key)
            match = self.headers.get("If-Match")
            if (self.headers.get("If-None-Match") == "*" and old) or (match and (old is None or match != old[1])):
                if not silent:
                    self._refuse(412, "PreconditionFailed")
                return
            if self.command == "POST":
                parts = uploads[query["uploadId"][0]]
                body = b"".join(parts[n] for n in sorted(parts))
            tag = f'"{hashlib.md5(body).hexdigest()}"'
            objects[key] = body, tag
            headers["ETag"] = tag
            if self.command == "POST":
                out = f"<CompleteMultipartUploadResult><ETag>{escape(tag)}</ETag></CompleteMultipartUploadResult>".encode()
        if not silent:
            self._answer(status, out, **headers)

    def _list(self, query: Dict[str, List[str]]) -> None:
        prefix, out = query.get("prefix", [""])[0], ""
        for key, (data, tag) in sorted(self.server.objects.items()):
            if key.startswith(prefix):
                out += f"<Contents><Key>{urllib.parse.quote(key)}</Key><Size>{len(data)}</Size><ETag>{escape(tag)}</ETag>"
                out += "<LastModified>2026-01-01T00:00:00Z</LastModified></Contents>"
        text = f"<ListBucketResult><EncodingType>url</EncodingType><IsTruncated>false</IsTruncated>{out}</ListBucketResult>"
        self._answer(200, text.encode())

    def _get(self, key: str) -> None:
        if key not in self.server.objects:
            self._refuse(404, "NoSuchKey")
            return
        data, tag = self.server.objects[key]
        headers = {"ETag": tag, "Last_Modified": "Thu, 01 Jan 2026 00:00:00 GMT"}
        if ranged := self.headers.get("Range"):
            a, b = ranged.split("=")[1].split("-")
            first, last = int(a), min(int(b or len(data)), len(data) - 1)
            if first > last:
                self._refuse(416, "InvalidRange")
                return
            headers["Content_Range"] = f"bytes {first}-{last}/{len(data)}"
            self._answer(206, data[first : last + 1], **headers)
        elif self.command == "HEAD":
            self._answer(200, Content_Length=str(len(data)), **headers)
        else:
            self._answer(200, data, **headers)

    do_GET = do_HEAD = do_PUT = do_POST = do_DELETE = _serve

    def log_message(self, *_: object) -> None:
        pass


@contextlib.contextmanager
def served(monkeypatch: Any) -> Iterator[Server]:
    """A server, and credentials for it."""
    for name, value in {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_EC2_METADATA_DISABLED": "true"}.items():
        monkeypatch.setenv(name, value)
    with Server() as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield server
        finally:
            server.shutdown()
            thread.join()
