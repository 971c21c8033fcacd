"""Check users' files as ``ms-tune check`` does, and count the screens: estimates, reasons, exit codes, findings.

``find FOLDER... -name '*.sh' | python benchmarks/check_files.py [--rows FILE]`` reads paths from standard input. It prints how many files have an
estimate, the reasons of the others, exit codes, and every error; ``--rows`` writes a line of JSON per file. Put a sample where its repository is.
"""

from __future__ import annotations

import argparse
import json
import sys
import traceback
from collections import Counter
from pathlib import Path
from typing import Any

from ms_tune.errors import MsTuneError
from ms_tune.workflows.check.run import check_job


def check(path: Path) -> dict[str, Any]:
    """Return what the screen of a file says."""
    try:
        screen = check_job(path)
    except MsTuneError as error:  # one line instead of a screen
        return {"kind": type(error).__name__, "range": None, "why": str(error), "exit": 2, "errors": []}
    except Exception:  # noqa: BLE001 - a defect is counted
        traceback.print_exc()
        return {"kind": "crash", "range": None, "why": "", "exit": 3, "errors": []}
    return {
        "kind": screen.subject.dialect,
        "range": screen.estimate and screen.estimate.range_bytes,
        "why": str(screen.no_estimate_because or ""),
        "exit": int(screen.exit_code()),
        "errors": [f"{one.id} {one.text}" for one in screen.matters if one.severity.value == "error"],
    }


def main() -> None:
    """Check the files and print the counts."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=Path, help="a file for a line of JSON per file")
    options = parser.parse_args()
    rows = {line.strip(): check(Path(line.strip())) for line in sys.stdin if line.strip()}
    estimated = sum(row["range"] is not None for row in rows.values())
    print(
        f"{len(rows)} files, {estimated} with an estimate; exit codes {dict(Counter(row['exit'] for row in rows.values()))}"
    )
    reasons = Counter((row["kind"], row["why"][:100]) for row in rows.values() if row["range"] is None)
    for (kind, why), count in reasons.most_common():
        print(f"{count:5} {kind}: {why}")
    for path, row in rows.items():
        for error in row["errors"]:
            print(f"error in {path}: {error}")
    if options.rows:
        text = "".join(json.dumps({"path": path, **row}) + "\n" for path, row in rows.items())
        options.rows.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
