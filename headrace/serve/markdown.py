"""The little of Markdown that our own pages use, as HTML. Everything is escaped: raw HTML is only text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from html import escape

Link = Callable[[str], str | None]  # where a target leads here; None: it is only text

_INLINE = re.compile(r"`([^`]+)`|\[([^\]]+)\]\(([^)\s]+)\)|\*\*([^*]+)\*\*|\*([^*\s][^*]*)\*")
_ITEM = re.compile(r"^- ")
_BLOCK = re.compile(r"^(?:#{1,3} |- |\||```)")


def title_of(text: str) -> str:
    first = re.search(r"^# (.+)$", text, re.MULTILINE)
    return escape(first[1]) if first else ""


def as_html(text: str, link: Link) -> str:
    return "\n".join(_blocks(text.splitlines(), link))


def _blocks(lines: list[str], link: Link) -> Iterator[str]:
    at = 0
    while at < len(lines):
        line = lines[at]
        if not line.strip():
            at += 1
        elif line.startswith("```"):
            end = next((i for i in range(at + 1, len(lines)) if lines[i].startswith("```")), len(lines))
            yield f"<pre><code>{escape(chr(10).join(lines[at + 1 : end]))}</code></pre>"
            at = end + 1
        elif heading := re.match(r"^(#{1,3}) (.+)$", line):
            level = len(heading[1])
            yield f"<h{level}>{_inline(heading[2], link)}</h{level}>"
            at += 1
        else:
            end = _end(lines, at)
            yield _group(lines[at:end], link)
            at = end


def _end(lines: list[str], at: int) -> int:
    """Where the paragraph, list or table that begins here ends."""
    kind = lines[at][:1] if _BLOCK.match(lines[at]) else ""
    end = at + 1
    while end < len(lines) and lines[end].strip():
        other = _BLOCK.match(lines[end])
        if other and (not kind or not lines[end].startswith(kind)):
            break
        end += 1
    return end


def _group(lines: list[str], link: Link) -> str:
    if lines[0].startswith("|"):
        return _table(lines, link)
    if _ITEM.match(lines[0]):
        items = re.split(r"^- ", "\n".join(lines), flags=re.MULTILINE)[1:]
        return "<ul>" + "".join(f"<li>{_inline(_joined(item), link)}</li>" for item in items) + "</ul>"
    return f"<p>{_inline(_joined(chr(10).join(lines)), link)}</p>"


def _table(lines: list[str], link: Link) -> str:
    rows = [[cell.strip() for cell in line.strip().strip("|").split("|")] for line in lines]
    body = [row for row in rows[1:] if not all(set(cell) <= set("-: ") for cell in row)]
    head = "".join(f"<th>{_inline(cell, link)}</th>" for cell in rows[0])
    cells = ("".join(f"<td>{_inline(cell, link)}</td>" for cell in row) for row in body)
    return f"<table><tr>{head}</tr>" + "".join(f"<tr>{row}</tr>" for row in cells) + "</table>"


def _joined(text: str) -> str:
    return " ".join(text.split())


def _inline(text: str, link: Link) -> str:
    parts, at = [], 0
    for found in _INLINE.finditer(text):
        parts += [escape(text[at : found.start()]), _marked(found, link)]
        at = found.end()
    return "".join([*parts, escape(text[at:])])


def _marked(found: re.Match[str], link: Link) -> str:
    code, label, target, strong, emphasis = found.groups()
    if code is not None:
        return f"<code>{escape(code)}</code>"
    if label is not None:
        where = link(target)
        return f'<a href="{escape(where)}">{escape(label)}</a>' if where is not None else escape(label)
    return f"<strong>{escape(strong)}</strong>" if strong is not None else f"<em>{escape(emphasis)}</em>"
