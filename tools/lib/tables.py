"""Plain text tables."""


def text_table(head, rows):
    """Aligned columns; numbers and sizes to the right, where - stands for none."""
    rows = [[str(cell) for cell in row] for row in rows]
    widths = [max(len(row[i]) for row in [head, *rows]) for i in range(len(head))]
    right = [all(row[i] == "-" or row[i][:1].isdigit() for row in rows) for i in range(len(head))]

    def line(cells):
        return "  ".join(c.rjust(w) if r else c.ljust(w) for c, w, r in zip(cells, widths, right)).rstrip()

    return "\n".join([line(head), line(["-" * w for w in widths]), *map(line, rows)])


def size(count):
    return "0" if count == 0 else f"{count / (1 << 20):.1f} MiB"
