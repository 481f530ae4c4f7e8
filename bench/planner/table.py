"""What the planner reaches on the default simulated card, beside its limits: one table, and the same figures as JSON.

    .venv/bin/python bench/planner/table.py [--json FILE] [--program LOWTIDE] [--only TEXT]

bench/planner/run sets up what this needs. Of all figures only the planning times are of this machine's clock.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import cap_sweep  # noqa: E402
import job_rows  # noqa: E402
import planning_time  # noqa: E402
from figures import LOWTIDE, MIB, ROOT, Wrong, text_table, verdict, fail  # noqa: E402
from on_card import Program, card  # noqa: E402

HEAD = ["case", "cap MiB", "limit ms", "resident ms", "best peer ms (its peak)", "prefix policy ms", "lowtide ms", "peak MiB",
        "must ms", "x limit", "verdict"]
SWEEP, PLANNING = "cap sweep", "planning time"
NOTES = """
On the simulated card: times are what its clocks model, everything warm; peaks are above the context. Plans rest on measured peaks.
Limit: of one job max(compute, weights / link), in waves the resident time. A resident time above it says that launches on the host, or
the job's own inputs and outputs, are the bound; rows with --low-vram must then be near that. Resident: PyTorch, all weights on the card.
Best peer: the fastest that takes no more memory than lowtide did; (!) none does, this is the fastest of all.
Times of `lowtide plan` are user + system CPU time of the whole command on this machine, the median of three.
""".strip()


class Results:
    """Rows as they come, the sweep's points, and what was wrong."""

    def __init__(self, program):
        self.program, self.rows, self.sweep, self.wrong = program, [], [], []

    def parts(self):
        """Name -> what measures it and adds its rows."""
        parts = {case.name: lambda case=case: self.rows.append(job_rows.measure(self.program, case)) for case in job_rows.CASES}
        return {**parts, SWEEP: self.measure_sweep, PLANNING: lambda: self.rows.extend(planning_time.measure(self.program))}

    def measure_sweep(self):
        self.sweep = cap_sweep.measure(self.program)
        self.rows.append(cap_sweep.row(self.sweep))

    def measure(self, only):
        if not any(only in name for name in self.parts()):
            fail(f"nothing has '{only}' in its name; there are: " + "; ".join(self.parts()))
        for name, part in self.parts().items():
            if only not in name:
                continue
            print(f"measuring: {name}", file=sys.stderr, flush=True)
            try:
                part()
            except Wrong as wrong:
                self.wrong.append(f"{name}: {wrong}")
                self.rows.append({"case": name})
        for row in self.rows:
            row["verdict"] = verdict(row["lowtide_s"], row["must_s"]) if "lowtide_s" in row else "WRONG"


def cells(row):
    def cell(key, scale, digits):
        value = row.get(key)
        return "-" if value is None else f"{value * scale:.{digits}f}"

    peer = row.get("peer")
    if peer:
        mark = "" if peer["fits"] else " (!)"
        peer = f"{peer['modelled_s'] * 1e3:.2f} {peer['name']} ({peer['peak_bytes'] / MIB:.1f} MiB){mark}"
    ratio = f"{row['lowtide_s'] / row['limit_s']:.2f}" if "limit_s" in row else "-"
    return [row["case"], cell("cap_bytes", 1 / MIB, 1), cell("limit_s", 1e3, 2), cell("resident_s", 1e3, 2), peer or "-",
            cell("prefix_s", 1e3, 2), cell("lowtide_s", 1e3, 2), cell("peak_bytes", 1 / MIB, 1), cell("must_s", 1e3, 2), ratio,
            row["verdict"]]


def main():
    parser = argparse.ArgumentParser(description="lowtide's plans on the simulated card beside limits and peers")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "planner.json", metavar="FILE")
    parser.add_argument("--program", type=Path, default=LOWTIDE, metavar="LOWTIDE", help="(default: the release build's)")
    parser.add_argument("--only", default="", metavar="TEXT", help="only what has this in its name: a model, 16 jobs, "
                        f"{SWEEP}, {PLANNING}")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        results = Results(Program(options.program.resolve(), Path(folder)))
        results.measure(options.only)
    print(text_table(HEAD, map(cells, results.rows)))
    if results.sweep:
        print(f"\nTime never rises with the cap: blocks_8x1024, 2x64, the second of two jobs, --after-job keep\n"
              f"{cap_sweep.table(results.sweep)}")
    print(f"\n{NOTES}")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    options.json.write_text(json.dumps({"card": card(), "rows": results.rows, "sweep": results.sweep}, indent=1) + "\n")
    print(f"Figures: {options.json}")
    for message in results.wrong:
        print(f"bench/planner/run: error: {message}", file=sys.stderr)
    return 1 if results.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
