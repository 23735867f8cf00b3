"""All measurements, one after another: `python -m benchmarks` (`make bench`)."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path(__file__).parent
HELPERS = {"__main__", "__init__", "fleet", "mock_engine", "month"}


def main() -> int:
    """Run each benchmark in a process of its own; returns how many failed."""
    failed = 0
    for path in sorted(FOLDER.glob("*.py")):
        if path.stem in HELPERS:
            continue
        print(f"\n== {path.stem}", flush=True)
        failed += subprocess.run([sys.executable, "-m", f"benchmarks.{path.stem}"], cwd=FOLDER.parent).returncode != 0
    return failed


if __name__ == "__main__":
    sys.exit(main())
