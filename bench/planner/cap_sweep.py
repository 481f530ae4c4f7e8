"""Caps from the smallest that works to the resident peak: the time must not rise with the cap."""

from figures import MIB, Failed, Wrong, text_table, verdict
from job_rows import BLOCKS_2X64, prefix_seconds

COUNT = 13
MICROSECONDS = 6  # digits: times are compared as they are printed


def measure(program, call=BLOCKS_2X64):
    """A point for each cap: the second of two equal jobs, with what fits kept between them."""
    learned = program.plain(call)
    plan = two_jobs(program, call, learned).report["plan"]
    low, high = plan["min_cap_bytes"], plan["peak_bytes"]
    caps = [round(low * (high / low) ** (step / (COUNT - 1))) for step in range(COUNT)]
    prefix = prefix_seconds(program, call, caps, learned)
    points = []
    for cap in caps:
        run = two_jobs(program, call, learned, "--vram-cap", str(cap))
        points.append({
            "cap_bytes": cap,
            "resident_bytes": run.report["plan"]["resident_bytes"],
            "prefix_s": prefix.get(cap),
            "lowtide_s": round(run.last_job_s, MICROSECONDS),
            "peak_bytes": run.peak_bytes,
            "must_s": min((point["lowtide_s"] for point in points), default=None),  # with less memory
        })
    check_refused(program, call, learned, low - 1)
    return points


def two_jobs(program, call, known, *cap):
    return program.run(call, 2, *cap, "--after-job", "keep", known=known).checked()


def check_refused(program, call, known, cap):
    try:
        program.run(call, 1, "--vram-cap", str(cap), known=known)
    except Failed as failed:
        if failed.exit_code == 3:
            return
        raise
    raise Wrong(f"{call}: a cap of {cap} bytes was accepted, one less than the smallest that the plan gave")


def rise(point):
    return point["lowtide_s"] - point["must_s"] if point["must_s"] is not None else 0.0


def row(points):
    """The sweep as one row of the main table: its largest rise."""
    return {
        "case": f"blocks_8x1024, {len(points)} caps {points[0]['cap_bytes'] / MIB:.1f} to {points[-1]['cap_bytes'] / MIB:.1f} MiB:"
                " largest rise of the time",
        "lowtide_s": max(map(rise, points)),
        "must_s": 0.0,
    }


def table(points):
    head = ["cap MiB", "resident MiB", "prefix policy ms", "lowtide ms", "peak MiB", "must ms", "verdict"]

    def ms(seconds):
        return "-" if seconds is None else f"{seconds * 1e3:.3f}"

    return text_table(head, [
        [f"{point['cap_bytes'] / MIB:.2f}", f"{point['resident_bytes'] / MIB:.1f}", ms(point["prefix_s"]), ms(point["lowtide_s"]),
         f"{point['peak_bytes'] / MIB:.2f}", ms(point["must_s"]), verdict(rise(point), 0.0)]
        for point in points])
