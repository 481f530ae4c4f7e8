"""The figures that memory must reach, each as reached or missed, with the numbers of this run."""

from lowtide_runs import DEFAULT_WITHOUT_PATTERN, KNOWN

MOST_LAYOUT, MOST_FRAGMENTATION = 1.05, 0.05


def judge(results):
    return [layout(results), fragmentation(results), steady(results)]


def default_setting(rows):
    """The first setting is the program's default."""
    return next(iter(rows))


def entry(figure, checks):
    """Checks are (line, True, False or None); None is what the report does not tell."""
    if not checks:
        return {"figure": figure, "verdict": "not measured", "numbers": []}
    known = [good for _, good in checks if good is not None]
    unknown = len(known) < len(checks)
    verdict = "missed" if False in known else "not told by the report" if unknown else "reached"
    marks = {True: "reached", False: "MISSED", None: "not told"}
    return {"figure": figure, "verdict": verdict, "numbers": [f"{line}: {marks[good]}" for line, good in checks]}


def layout(results):
    checks = []
    for name, net in results.items():
        rows = net.get("fixed", {}).get("lowtide", {}).get("rows", {})
        for setting, row in rows.items():
            if "off" in setting or "bound_bytes" not in row:
                continue
            share = row["activation_bytes"] / row["bound_bytes"]
            laid_out = not setting.startswith(DEFAULT_WITHOUT_PATTERN)
            what = "layout" if laid_out else "what is alive (this build lays nothing out)"
            checks.append((f"{name}, {setting}: {what} {row['activation_bytes']}, bound {row['bound_bytes']}, ratio {share:.3f}; "
                           f"the program's own bound {row['activation_lower_bound_bytes']}",
                           share <= MOST_LAYOUT if laid_out else None))
    return entry(f"Layout peak <= {MOST_LAYOUT} x lower bound", checks)


def slope(values):
    """Bytes a round, least squares."""
    count = len(values)
    middle = (count - 1) / 2
    below = sum((i - middle) ** 2 for i in range(count))
    return sum((i - middle) * value for i, value in enumerate(values)) / below if below else 0.0


def fragmentation(results):
    checks = []
    for name, net in results.items():
        ours, theirs = (net.get("sizes_summary", {}).get(engine) for engine in ("lowtide", "ort"))
        if not ours:
            continue
        setting = default_setting(ours)
        row, orders = ours[setting], net["sizes"]["lowtide"][setting]
        if setting == DEFAULT_WITHOUT_PATTERN:
            checks.append((f"{name}, {setting}: this build has no arena, and the simulated card does not fragment; what follows says "
                           "nothing of one", None))
        lost = [r["fragmentation"] for r in theirs.values()]
        spread = max(r["max_bytes"] / r["min_bytes"] for r in theirs.values())
        # The first round is where sizes are met for the first time.
        largest = max((slope(one["largest_peaks"][1:]) for one in orders.values()), key=abs)
        level = max((slope(one["levels"][1:]) for one in orders.values()), key=abs)
        after = max(one["used_after_values"] for one in orders.values())
        checks += [
            (f"{name}, {setting}: fragmentation {row['worst_fragmentation']:.1%} (ONNX Runtime {min(lost):.0%} to {max(lost):.0%})",
             row["worst_fragmentation"] < MOST_FRAGMENTATION),
            (f"{name}, {setting}: {row['orders']} orders reach {row['min_bytes']} to {row['max_bytes']} bytes "
             f"(ONNX Runtime: up to x {spread:.2f})", row["min_bytes"] == row["max_bytes"]),
            (f"{name}, {setting}: bytes a round from the second on: {largest:.1f} at the largest size, {level:.1f} of the level; "
             f"{after} value(s) of the bytes used after a job", largest == 0 and level == 0 and after == 1),
        ]
    return entry(f"Fragmentation < {MOST_FRAGMENTATION:.0%} after ten sizes in every order, the same level in each, slope zero", checks)


def steady(results):
    checks = []
    for name, net in results.items():
        rows = dict(net.get("fixed", {}).get("lowtide", {}).get("rows", {}))
        sizes = net.get("sizes", {}).get("lowtide", {})
        if sizes:
            setting = default_setting(sizes)
            rows.update({f"{setting}, ten sizes, order {seed}": row for seed, row in sizes[setting].items()})
        for setting, row in rows.items():
            if "off" in setting:
                continue
            allocs, hits, misses = row["device_allocs_steady"], row["plan_hits"], row["plan_misses"]
            checks.append((f"{name}, {setting}: device_allocs_steady {allocs}", None if allocs is None else allocs == 0))
            # Only there is no job the first of its shape, which may miss.
            if setting.endswith(KNOWN):
                checks.append((f"{name}, {setting}: planned hits {hits}, misses {misses}",
                               None if hits is None or misses is None else misses == 0 and hits > 0))
    return entry("Steady state of a known shape: every activation request a planned hit, no allocation", checks)
