"""The readable page of results."""


def markdown(results):
    lines = [f"# GPU check on `{results['device']}`", ""]
    if results["device"].startswith("sim"):
        lines += ["On the simulated card: this says that the check itself works, nothing about GPUs.", ""]
    lines += ["| section | status |", "| --- | --- |"]
    lines += [f"| {section['name']} | {section['status']} |" for section in results["sections"]]
    for section in results["sections"]:
        lines += ["", f"## {section['name']}: {section['status']}", ""]
        for head, rows in section["tables"]:
            if rows:
                lines += ["| " + " | ".join(head) + " |", "| " + " | ".join("---" for _ in head) + " |"]
                lines += ["| " + " | ".join(cell(value) for value in row) + " |" for row in rows] + [""]
        for remark in section["remarks"]:
            lines += ["```", remark, "```"] if "\n" in remark else [f"- {remark}"]
    if "seconds" in results:
        lines += ["", f"{results['seconds']} seconds in all."]
    return "\n".join(lines) + "\n"


def cell(value):
    if value is None:
        return "-"
    if isinstance(value, float):
        return f"{value:.4g}"
    return str(value).replace("|", "\\|").replace("\n", " ")


def mib(count):
    return None if count is None else f"{count / (1 << 20):.1f} MiB"
