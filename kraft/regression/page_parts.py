"""Pieces of an HTML page that contains its plots and needs no network.

The pages of ``kraft regress`` and of the fleet's runs are made of these functions: the document
with its styles and scripts, tables that sort, plots that ``page.js`` draws from data in the page.
``page.css``, ``page.js``, the data of the plots and once plotly.js from the plotly package are
embedded; plotly.js and all data but those of the first plot are compressed, so that a page of 1,000
series has 3 MB instead of 8 MB. The page's Content-Security-Policy forbids network access. The
pages of a site (`PageSite`) load one plotly.js that is beside them, and one that is served live
asks its own server for changes.

Arguments named ``content``, ``rows`` or ``body`` are markup; the caller escapes every foreign text
with `escaped`.
"""

from __future__ import annotations

import base64
import gzip
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from html import escape
from importlib.resources import files

from kraft.errors import MissingPackageError
from kraft.regression import report_text

#: The file of plotly.js beside the pages of a site.
PLOTLY_FILE = "plotly.js"
#: The path of the comparisons of a site that is served live.
COMPARISONS = "compare"


@dataclass(frozen=True)
class PageSite:
    """The place of a page: alone in one file, or in a folder with others and `PLOTLY_FILE`.

    A page with a ``name`` is served live: it shows the ``message`` of the server's ``state.json``
    in the element with the id ``live``, and loads itself again when the generation of ``name``
    there is another one than its own.
    """

    has_plotly_file: bool = False
    home: str = ""  # address of the dashboard, relative to the page
    compare: str = ""  # address of the comparisons of the page's project
    name: str = ""
    generation: str = ""

    @property
    def policy(self) -> str:
        """Return the Content-Security-Policy of the page."""
        # A page that is opened as a file has no origin that 'self' could name.
        beside = " 'self' file:" if self.has_plotly_file else ""
        connect = "; connect-src 'self'" if self.name else ""
        return (
            "default-src 'none'; style-src 'unsafe-inline'; "
            f"script-src 'unsafe-inline'{beside}; img-src data: blob:{connect}"
        )


_TAG = re.compile("<[^>]*>")
#: The name of a plot's data, as `figure` writes it.
_DATA_OF = re.compile('class="plot" data-kind="[a-z]+" data-of="([^"]*)"')

#: A page in one file.
ALONE = PageSite()


def document(
    title: str, body: str, data: Mapping[str, object], *, style: str = "", site: PageSite = ALONE
) -> str:
    """Return the whole page as text; write it as UTF-8. About 2 MB of it are plotly.js.

    ``data`` holds the data of each plot by its name, for `figure`; without plots, plotly.js is left
    out. ``style`` is appended to ``page.css``. ``site`` is the page's place.

    Raises MissingPackageError where plotly is not installed (``pip install 'kraft[report]'``).
    """
    embedded = [f"<script>{_package_file('page.js')}</script>"]
    if data:
        # The script draws the first plot while the browser still reads the rest of the page.
        first = next((name for name in _DATA_OF.findall(body) if name in data), "")
        embedded.insert(0, _first_data({first: data[first]} if first else {}))
        embedded.append(_packed("data", _numbers({n: data[n] for n in data if n != first})))
        if site.has_plotly_file:
            embedded.append(f'<script src="{PLOTLY_FILE}"></script>')
        else:
            embedded.append(_packed("plotly", plotly_script()))
    scripts = "\n".join(embedded)
    if site.name:
        scripts += (
            f'\n<script data-page="{escaped(site.name)}" '
            f'data-generation="{escaped(site.generation)}">{_package_file("live.js")}</script>'
        )
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{site.policy}">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{escaped(title)}</title>\n<style>\n{_package_file('page.css')}{style}</style>\n"
        f"</head>\n<body>\n{body}\n{scripts}\n</body>\n</html>\n"
    )


def site_line(site: PageSite, message: str = "") -> str:
    """Return the line above a page's title: the way to the dashboard, and the server's message,
    which the page's script replaces by newer ones.
    """
    home = f'<a href="{escaped(site.home)}">All projects</a>' if site.home else ""
    if site.compare:
        home += f'<a href="{escaped(site.compare)}">Compare runs</a>'
    live = f'<span id="live" class="quiet">{escaped(message)}</span>' if site.name else ""
    return f'<p class="site">{home}{live}</p>\n' if home or live else ""


def comparisons_of(project_page: str) -> str:
    """Return the address of a project's comparisons, relative to the dashboard."""
    return f"{COMPARISONS}?project={project_page}"


def table(head: Sequence[tuple[str, bool]], rows: str) -> str:
    """Return a table; ``head`` has the columns, and whether each holds numbers."""
    cells = "".join(
        f'<th scope="col"{" class=number" if is_number else ""}><button>{name}</button></th>'
        for name, is_number in head
    )
    return (
        f'<div class="wide"><table><thead><tr>{cells}</tr></thead>\n'
        f"<tbody>{rows}</tbody></table></div>"
    )


def cell(content: str, *, key: float | str, style: str = "") -> str:
    """Return a cell with its sort key; numbers are right-aligned.

    A key that is the cell's text is left out, because ``page.js`` then sorts by the text.
    """
    style = style or ("" if isinstance(key, str) else "number")
    named = f' class="{style}"' if style else ""
    sorted_by = f"{key:.6g}" if isinstance(key, float) else escaped(str(key))
    if _TAG.sub("", content) == sorted_by:
        return f"<td{named}>{content}</td>"
    return f'<td{named} data-key="{sorted_by}">{content}</td>'


def figure(kind: str, data: str, caption: str, label: str) -> str:
    """Return the place of a plot: its kind in ``page.js``, the name of its data, its label."""
    facts = f"<figcaption>{caption}</figcaption>" if caption else ""
    return (
        f'<figure>{facts}<div class="plot" data-kind="{kind}" data-of="{data}" role="img" '
        f'aria-label="{label}"></div></figure>'
    )


def fields(pairs: Iterable[tuple[str, str]]) -> str:
    """Return names and values as a list of definitions."""
    inside = "".join(f"<dt>{escaped(name)}</dt><dd>{escaped(value)}</dd>" for name, value in pairs)
    return f'<dl class="fields">{inside}</dl>'


def left_out(count: int, what: str) -> str:
    """Return a line about omitted rows; nothing for none."""
    return f'<p class="quiet">{count:,} more {what} are omitted.</p>' if count > 0 else ""


def escaped(text: str) -> str:
    """Return text escaped for content and attributes."""
    return escape(report_text.printable(text))


def _numbers(data: Mapping[str, object]) -> str:
    return json.dumps(data, allow_nan=False, separators=(",", ":"))


def _first_data(data: Mapping[str, object]) -> str:
    """Return data that ``page.js`` reads at once, of which no letter is markup."""
    text = _numbers(data).replace("<", "\\u003c")
    return f'<script type="application/json" id="first-data">{text}</script>'


def _packed(name: str, text: str) -> str:
    """Return text for ``page.js``, compressed and in base64, of which no letter is markup."""
    packed = base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()
    return f'<script type="application/octet-stream" id="packed-{name}">{packed}</script>'


def _package_file(name: str) -> str:
    return files("kraft.regression").joinpath(name).read_text(encoding="utf-8")


def plotly_script() -> str:
    """Return the text of plotly.js. Raises MissingPackageError without plotly."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError:
        raise MissingPackageError(
            "an HTML report needs plotly: pip install 'kraft[report]'"
        ) from None
    script: str = get_plotlyjs()
    return script
