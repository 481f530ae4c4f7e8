"""lowtide beside its peers on the default simulated card: one table, and the same figures as JSON.

    .venv/bin/python bench/peers/table.py [--json FILE] [--program LOWTIDE]

bench/peers/run sets up what this needs. Nothing depends on a clock of this machine: two calls print the same.
"""

import argparse
import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from figures import LOWTIDE, MIB, ROOT, fail, need_archive, text_table  # noqa: E402
from on_card import MODELS, PEERS, Call, Program, Wrong, card, one_pass_limit, peer_figures  # noqa: E402

ARCHIVE = MODELS / "blocks_8x1024.pt2"
# Tokens of each of the two sequences -> the call that has them, and lowtide's cap: the peak of diffusers' leaf groups.
SIZES = {64: (Call(ARCHIVE), 37.5), 512: (Call(ARCHIVE, 1), 76.0)}


def lowtide_figures(program, call, *options):
    """Those of the last of three equal jobs; the stall of a job is what one more of them adds."""
    before = program.run(call, 2, *options)
    after = program.run(call, 3, *options).checked()
    return {
        "modelled_s": after.last_job_s,
        "peak_bytes": after.peak_bytes,
        "h2d_bytes": after.report["jobs"][-1]["h2d_bytes"],
        "stall_s": after.report["measured"]["stall_s"] - before.report["measured"]["stall_s"],
        "cap_bytes": after.report["cap_bytes"],
    }


def measure(program):
    """Row -> tokens -> figures."""
    rows = {row: {tokens: peer_figures(row, call) for tokens, (call, _) in SIZES.items()} for row in PEERS}
    limit = {tokens: {"modelled_s": one_pass_limit(rows["resident"][tokens])} for tokens in SIZES}
    caps = " / ".join(f"{cap:g}" for _, cap in SIZES.values())
    rows["limit of one pass: max(compute, weights / link)"] = limit
    rows[f"lowtide, cap {caps} MiB"] = {
        tokens: lowtide_figures(program, call, "--vram-cap", str(int(cap * MIB))) for tokens, (call, cap) in SIZES.items()}
    rows["lowtide, resident"] = {
        tokens: lowtide_figures(program, call, "--after-job", "keep") for tokens, (call, _) in SIZES.items()}
    for figures in rows.values():
        for tokens in SIZES:
            figures[tokens]["ratio_to_limit"] = figures[tokens]["modelled_s"] / limit[tokens]["modelled_s"]
    return rows


def cells(figures):
    def cell(key, scale):
        return f"{figures[key] * scale:.1f}" if key in figures else "-"

    return [cell("modelled_s", 1e3), cell("peak_bytes", 1 / MIB), cell("h2d_bytes", 1 / MIB), cell("stall_s", 1e3),
            f"{figures['ratio_to_limit']:.2f}"]


def main():
    parser = argparse.ArgumentParser(description="lowtide beside accelerate and diffusers on the simulated card")
    parser.add_argument("--json", type=Path, default=ROOT / "build" / "peers.json", metavar="FILE")
    parser.add_argument("--program", type=Path, default=LOWTIDE, metavar="LOWTIDE", help="(default: the release build's)")
    options = parser.parse_args()
    need_archive(ARCHIVE)
    with tempfile.TemporaryDirectory() as folder:
        try:
            rows = measure(Program(options.program, Path(folder)))
        except Wrong as wrong:
            fail(wrong)
    head = ["blocks_8x1024, default card"]
    for tokens in SIZES:
        head += [f"2x{tokens}: ms", "peak MiB", "h2d MiB", "stall ms", "x limit"]
    lines = [[row, *(cell for tokens in SIZES for cell in cells(figures[tokens]))] for row, figures in rows.items()]
    print(text_table(head, lines))
    print("\nOn the simulated card: times are what its clocks model, everything warm; peaks are above the context.")
    options.json.parent.mkdir(parents=True, exist_ok=True)
    rows = {row: {f"2x{tokens}": values for tokens, values in figures.items()} for row, figures in rows.items()}
    options.json.write_text(json.dumps({"card": card(), "model": ARCHIVE.stem, "rows": rows}, indent=1) + "\n")
    print(f"Figures: {options.json}")


if __name__ == "__main__":
    main()
