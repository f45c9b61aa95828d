"""Reports of a comparison, or of a document that spells one out.

A document has the fields of `Comparison` as plain lists and mappings, which a test can change, and
besides them the `headline` ("text", "tone") and the name of the `timeline`.
"""

from __future__ import annotations

from typing import Any

import msgspec

from layerline.analysis.model.comparison import Comparison
from layerline.analysis.report import headline as headline_
from layerline.analysis.report import html as html_
from layerline.analysis.report import markdown as markdown_
from layerline.analysis.report import summary_json
from layerline.analysis.report.headline import Sentence

Document = Comparison | dict[str, Any]


def comparison(document: Document) -> Comparison:
    """The comparison that a document spells out."""
    return msgspec.convert(document, Comparison)


def headline(document: Document) -> list[Sentence]:
    """The document's own headline, else that of the comparison."""
    if isinstance(document, dict) and "headline" in document:
        return msgspec.convert(document["headline"], list[Sentence])
    return headline_.sentences(comparison(document))


def html(document: Document) -> str:
    timeline = document.get("timeline") if isinstance(document, dict) else None
    return html_.render(comparison(document), headline(document), timeline)


def markdown(document: Document) -> str:
    return markdown_.render(comparison(document), headline(document))


def summary(document: Document) -> dict[str, Any]:
    return summary_json.summary(comparison(document), headline(document))
