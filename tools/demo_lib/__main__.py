"""Runs the three jobs of the demo and prints what came out."""

from pathlib import Path

from . import chat, reading, search
from .lowtide import Lowtide
from lib.tables import size, text_table

OUT = Path("demo_out")
HEAD = ["model", "weights", "cap", "measured peak", "copied to the card", "in use after each job", "jobs", "time"]
JOBS = [
    ("A page is read, line by line", reading),
    ("Sentences are ranked by meaning", search),
    ("A language model continues sentences", chat),
]


def summary_row(model, outcome):
    measured = outcome.measured
    seconds = measured["wall_s"] if measured["modelled_s"] is None else measured["modelled_s"]
    sizes = measured["weight_bytes"], outcome.cap, measured["peak_bytes"], measured["h2d_bytes"], outcome.left_after
    return [model, *map(size, sizes), len(outcome.report["jobs"]), f"{seconds:.2f} s"]


def main():
    OUT.mkdir(exist_ok=True)
    lowtide = Lowtide(Path("models"), OUT)
    rows, shown = [], []
    for number, (title, job) in enumerate(JOBS, 1):
        print(f"\n=== {number}. {title} ({job.MODEL})", flush=True)
        outcome, text = job.run(lowtide, OUT)
        print(f"\n{text}", flush=True)
        rows.append(summary_row(job.MODEL, outcome))
        shown += [f"{number}. {title} ({job.MODEL})", "", text, ""]

    where = "On the simulated card; times are modelled" if lowtide.device == "sim" else "On the GPU"
    summary = f"{where}:\n{text_table(HEAD, rows)}"
    (OUT / "results.txt").write_text("\n".join([*shown, summary, ""]))
    print(f"\n=== Summary\n\n{summary}\n")
    print(f"Results: {OUT}/results.txt (all of the above), {OUT}/page.png and {OUT}/page.txt (what was read),")
    print(f"         {OUT}/MODEL/out (one file of tensors for each input), {OUT}/MODEL/report.json (the run report)")


if __name__ == "__main__":
    main()
