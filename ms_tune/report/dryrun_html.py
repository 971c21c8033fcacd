"""The report of a simulated job for the browser: that of ``memory``, and what the job should hold by theory.

The table of theory is plain HTML, so that the page's content security policy stays as strict as it is.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from ms_tune.footprint.breakdown import Theory
from ms_tune.report import memory_html
from ms_tune.report.words import size_text
from ms_tune.text import lookup

if TYPE_CHECKING:
    from ms_tune.dryrun.reading import JobReport
    from ms_tune.dryrun.result import StageResult
    from ms_tune.text import Language

_SECTION = """\
{% macro say(text) %}<span data-en="{{ text.en }}" data-zh="{{ text.zh }}"></span>{% endmacro -%}
<section id="job-theory">
<h2>{{ say(text("title")) }}</h2>
<p class="hint">{{ say(text("hint")) }}</p>
<table>
<thead><tr>{% for name in ("stage", "rank", "content") %}<th>{{ say(text(name)) }}</th>{% endfor -%}
{% for name in ("measured", "theory", "difference") %}<th class="n">{{ say(text(name)) }}</th>{% endfor %}</tr></thead>
<tbody>
{% for stage in stages %}
{% for pair in stage.theory %}
<tr><td>{{ stage.run.stage }}</td><td>{{ stage.run.rank }}</td><td>{{ say(content(pair)) }}</td>\
<td class="n">{{ size(pair.measured) }}</td><td class="n">{{ size(pair.expected) }}</td>\
<td class="n">{{ difference(pair) }}</td></tr>
{% else %}
<tr><td>{{ stage.run.stage }}</td><td>{{ stage.run.rank }}</td><td colspan="4">{{ say(text("unknown")) }}</td></tr>
{% endfor %}
{% endfor %}
</tbody>
</table>
</section>
"""


def report_html(report: JobReport, language: Language) -> str:
    """The page.

    Args:
        report: The job.
        language: The language that the page starts in.
    """
    memory = report.memory
    if not report.stages:
        return memory_html.report_html(memory, None, language)
    # Theory from the model's sizes takes the place of what the page would guess from the weights that it sees.
    ranks = tuple(
        replace(rank, theory=Theory(rank.theory.weights_bytes, rank.theory.parameters, (), None, None))
        if stage.theory
        else rank
        for rank, stage in zip(memory.ranks, report.stages, strict=True)
    )
    return memory_html.report_html(replace(memory, ranks=ranks), None, language, _section_html(report.stages))


def _section_html(stages: tuple[StageResult, ...]) -> str:
    import jinja2  # noqa: PLC0415 - an optional dependency, imported late

    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    return environment.from_string(_SECTION).render(
        stages=stages,
        text=lambda name: lookup(f"dryrun.page.{name}"),
        content=lambda pair: lookup(f"memory.content.{pair.content}"),
        size=size_text,
        difference=lambda pair: "–" if pair.difference is None else f"{pair.difference:+.3%}",
    )
