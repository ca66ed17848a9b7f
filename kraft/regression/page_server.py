"""Serve the pages of a `LiveStore` on loopback.

Paths: ``/`` the dashboard, ``/NAME.html`` a project, ``/compare`` two selections of its runs
(`live_comparison`), ``/NAME.json`` and ``/projects.json`` the same
as JSON, ``/state.json`` the generations of the pages (``live.js`` asks for it), ``/plotly.js``.
Names are looked up in the state and never become paths. The server reads no request body, answers
only requests for a loopback address (so that a foreign page cannot read the results by a name that
resolves to this machine), and has a limited number of threads.
"""

from __future__ import annotations

import errno
import json
import shutil
import threading
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from kraft.errors import KraftError
from kraft.regression import dashboard, project_pages
from kraft.regression.live_comparison import LiveComparisons
from kraft.regression.live_store import LiveStore
from kraft.regression.page_parts import COMPARISONS, PLOTLY_FILE, PageSite
from kraft.regression.project_pages import INDEX

#: Connections that are answered at a time; further ones are closed.
MOST_CONNECTIONS = 32
#: To receive a request, and for each write of the answer.
_TIMEOUT_S = 30.0
_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_HTML = "text/html; charset=utf-8"
_JSON = "application/json"
_SCRIPT = "text/javascript; charset=utf-8"


class PageServerError(KraftError):
    """The server cannot start; the message says what to do."""


class PageServer(ThreadingHTTPServer):
    """The server; ``port`` 0 takes a free one, and `url` has it.

    Raises PageServerError if the port is taken or may not be used.
    """

    daemon_threads = True
    request_queue_size = MOST_CONNECTIONS

    def __init__(self, live: LiveStore, folder: Path, store: str, port: int) -> None:
        self.live = live
        self.folder = folder
        self.store = store
        self.comparisons = LiveComparisons(live.request)
        self._free = threading.Semaphore(MOST_CONNECTIONS)
        try:
            super().__init__(("127.0.0.1", port), _Handler)
        except OSError as error:
            if error.errno not in (errno.EADDRINUSE, errno.EACCES):
                raise
            why = "is taken" if error.errno == errno.EADDRINUSE else "needs more rights"
            raise PageServerError(
                f"port {port} {why}: choose another one with --port; 0 takes a free one"
            ) from None

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}/"

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._free.acquire(blocking=False):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Do nothing: the client ended the connection, or was too slow."""


class _Handler(BaseHTTPRequestHandler):
    server: PageServer
    server_version = "kraft"
    sys_version = ""
    timeout = _TIMEOUT_S

    def do_GET(self) -> None:
        host = self.headers.get("Host", "")
        if (urlsplit(f"//{host}").hostname or "localhost") not in _LOOPBACK:
            self._send_text(
                HTTPStatus.FORBIDDEN, _HTML, "<p>This server answers only for localhost.</p>"
            )
            return
        asked = urlsplit(self.path)
        path = asked.path.removeprefix("/") or f"{INDEX}.html"
        state = self.server.live.state
        if path == f"{INDEX}.html":
            self._send_text(HTTPStatus.OK, _HTML, self._dashboard())
        elif path == "state.json":
            document = {
                "version": state.version,
                "message": state.message,
                "analysing": state.to_analyse > 0,
                "error": state.error or None,
                "pages": state.pages(),
            }
            self._send_text(HTTPStatus.OK, _JSON, json.dumps(document))
        elif path == "projects.json":
            found = project_pages.projects_document(state.version, list(state.projects.values()))
            self._send_text(HTTPStatus.OK, _JSON, found)
        elif path == COMPARISONS:
            self._comparison(dict(parse_qsl(asked.query)))
        elif path == PLOTLY_FILE:
            self._send_file(path, _SCRIPT, caching="max-age=86400")
        else:
            self._project(path)

    do_HEAD = do_GET  # noqa: N815  (its name in http.server)

    def _dashboard(self) -> str:
        state = self.server.live.state
        return dashboard.page(
            list(state.projects.values()),
            title=project_pages.title_of(self.server.store),
            facts=project_pages.facts_of(self.server.store, state.version),
            site=PageSite(has_plotly_file=True, name=INDEX, generation=str(state.changes)),
            message=state.message,
        )

    def _comparison(self, asked: dict[str, str]) -> None:
        state = self.server.live.state
        project = state.projects.get(asked.get("project", ""))
        if project is None:
            self._not_found()
            return
        status, text = self.server.comparisons.page(project, state.version, asked)
        self._send_text(status, _HTML, text)

    def _not_found(self) -> None:
        text = project_pages.message_page(
            "Not found",
            "This store has no such page. Its projects are on the first page.",
            PageSite(home=f"{INDEX}.html"),
        )
        self._send_text(HTTPStatus.NOT_FOUND, _HTML, text)

    def _project(self, path: str) -> None:
        """Answer with a file of a project, or with a page that says why there is none."""
        state = self.server.live.state
        name, _, suffix = path.rpartition(".")
        project = state.projects.get(name)
        if project is None or suffix not in ("html", "json"):
            self._not_found()
        elif name in state.generations:
            self._send_file(path, _HTML if suffix == "html" else _JSON)
        elif suffix == "json":
            self._send_text(
                HTTPStatus.SERVICE_UNAVAILABLE, _JSON, json.dumps({"error": state.message})
            )
        else:
            # Its generation is another one than that of the page that will be written.
            site = PageSite(home=f"{INDEX}.html", name=name)
            title = f"Benchmarks of {project.name}"
            said = "The analysis of this project runs. The page appears when it is done."
            text = project_pages.message_page(title, state.error or said, site)
            self._send_text(HTTPStatus.SERVICE_UNAVAILABLE, _HTML, text)

    def _send_text(self, status: HTTPStatus, content_type: str, text: str) -> None:
        body = text.encode()
        self._send_head(status, content_type, len(body))
        if self.command != "HEAD":
            self.wfile.write(body)

    def _send_file(self, name: str, content_type: str, caching: str = "no-store") -> None:
        """Send a file of the folder; ``name`` is one of the server's own."""
        with (self.server.folder / name).open("rb") as file:
            size = file.seek(0, 2)
            file.seek(0)
            self._send_head(HTTPStatus.OK, content_type, size, caching)
            if self.command != "HEAD":
                shutil.copyfileobj(file, self.wfile)

    def _send_head(
        self, status: HTTPStatus, content_type: str, size: int, caching: str = "no-store"
    ) -> None:
        self.send_response(status)
        self.send_header("Content-Type", content_type)
        self.send_header("Content-Length", str(size))
        self.send_header("Cache-Control", caching)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.end_headers()

    def log_message(self, *arguments: object) -> None:
        """Print nothing for a request."""
