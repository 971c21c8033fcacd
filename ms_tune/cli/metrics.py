"""Define ``ms-tune metrics``, which computes figures of real runs from their logs."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

from ms_tune.cli.output import LONG, ProgressLine, new_file, write_text_file
from ms_tune.cli.parser import Parser
from ms_tune.diagnostics import Severity
from ms_tune.errors import ExitCode, UsageError
from ms_tune.metrics.result import Convention, MetricsRequest
from ms_tune.metrics.run import measure_runs
from ms_tune.report.console import Console, usage_hint
from ms_tune.report.metrics import report_html, report_json, show_report, show_summary, show_verdicts
from ms_tune.text import Language, msg


def build_parser(language: Language) -> Parser:
    """Return the command's parser."""
    parser = Parser("ms-tune metrics", language, "metrics.description", "metrics.examples")
    parser.option("logs", "metrics.help.logs", type=Path, nargs="+", metavar="LOG")
    parser.option("--cards", "metrics.help.cards", type=parser.count, metavar="N")
    parser.option("--gbs", "metrics.help.gbs", type=parser.count, metavar="N")
    parser.option("--seq", "metrics.help.seq", type=parser.count, metavar="N")
    parser.file("--config", "metrics.help.config")
    parser.option("--framework-version", "metrics.help.framework-version", metavar="VERSION")
    parser.option("--model-config", "sizes.help.model-config", type=Path, metavar="PATH")
    parser.option(
        "--count", "metrics.help.count", choices=[one.value for one in Convention], default=Convention.FULL.value
    )
    device = parser.add_mutually_exclusive_group()
    parser.option("--chip", "metrics.help.chip", metavar="NAME", into=device)
    parser.option("--peak", "metrics.help.peak", type=parser.positive, metavar="TFLOPS", into=device)
    parser.option("--baseline", "metrics.help.baseline", type=Path, metavar="LOG")
    parser.option("--baseline-cards", "metrics.help.baseline-cards", type=parser.count, metavar="N")
    parser.option("--baseline-gbs", "metrics.help.baseline-gbs", type=parser.count, metavar="N")
    parser.option("--pattern", "metrics.help.pattern", metavar="REGEX")
    parser.file("--html", "metrics.help.html")
    parser.flag("--force", "memory.help.force")
    parser.add_common_arguments()
    return parser


def run(arguments: Namespace, console: Console) -> ExitCode:
    """Read the logs and show the figures."""
    new_file(arguments.html, force=arguments.force)
    if arguments.model_config is not None and arguments.config is None:
        raise UsageError(msg("cli.usage.required", detail="--config"), usage_hint("ms-tune metrics"))
    request = MetricsRequest(
        cards=arguments.cards,
        batch=arguments.gbs,
        tokens=arguments.seq,
        peak_tflops=arguments.peak,
        chip=arguments.chip,
        config=arguments.config,
        version=arguments.framework_version,
        model_config=arguments.model_config,
        convention=Convention(arguments.count),
        baseline_cards=arguments.baseline_cards,
        baseline_batch=arguments.baseline_gbs,
        pattern=arguments.pattern,
    )
    with ProgressLine(console, LONG) as progress:
        report = measure_runs(*arguments.logs, request=request, baseline=arguments.baseline, on_bytes=progress.read)
    if arguments.html:
        write_text_file(arguments.html, report_html(report, console.language), console)
    if arguments.json:
        console.write_json(report_json(report))
    elif arguments.quiet:
        show_verdicts(report, console)
    elif arguments.verbose:
        show_report(report, console)
    else:
        show_summary(report, arguments.config, console)
    serious = any(problem.severity is Severity.ERROR for problem in report.all_problems)
    return ExitCode.FINDINGS if serious else ExitCode.OK
