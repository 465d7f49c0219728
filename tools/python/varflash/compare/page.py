"""The page: plots and tables of one run as a single HTML file, without scripts."""

from html import escape

# Colours that stay apart for the colour-blind (Okabe and Ito); varflash first.
COLOURS = ["#0072b2", "#999999", "#e69f00", "#56b4e9", "#009e73", "#cc79a7", "#d55e00", "#f0e442"]

STYLE = """
:root { color-scheme: light dark; }
body { font: 15px/1.45 system-ui, sans-serif; max-width: 68rem; margin: 2rem auto; padding: 0 1rem; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; }
.facts, figcaption { color: GrayText; } .facts code { font-size: 0.9em; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; font-size: 0.9rem; }
th, td { padding: 0.2rem 0.7rem; text-align: right; border-bottom: 1px solid #8884; } th:first-child, td:first-child { text-align: left; }
.best { font-weight: 700; } .legend span { display: inline-block; margin-right: 1rem; }
.legend i { display: inline-block; width: 0.8em; height: 0.8em; margin-right: 0.3em; vertical-align: -0.05em; }
svg { width: 100%; height: auto; } svg text { fill: currentColor; font-size: 11px; font-family: inherit; } figure { margin: 0.5rem 0; }
.scroll { overflow-x: auto; }
"""


def worst_ratios(records):
    """{peer: the largest ratio of varflash's rms error to the peer's, over all operands and problems}."""
    worst = {}
    for record in records:
        ours = record["peers"].get("varflash", {}).get("errors", {})
        for name, peer in record["peers"].items():
            for operand, error in peer["errors"].items():
                if name != "varflash" and operand in ours and error["rms"] > 0:
                    worst[name] = max(worst.get(name, 0.0), ours[operand]["rms"] / error["rms"])
    return worst


def _plot(records, names):
    """Bars from the left, a group for each problem."""
    present = [name for name in names if any(name in record["peers"] for record in records)]
    most = max(peer["tflops"] for record in records for peer in record["peers"].values())
    bar, label, width = 11, 250, 900
    parts, y = [], 4
    for record in records:
        shown = [name for name in present if name in record["peers"]]
        parts.append(f'<text x="{label - 8}" y="{y + len(shown) * bar / 2 + 4}" text-anchor="end">{escape(record["problem"])}</text>')
        for name in shown:
            value = record["peers"][name]["tflops"]
            length = max(1.0, value / most * (width - label - 60))
            colour = COLOURS[names.index(name) % len(COLOURS)]
            title = f"{escape(name)}: {value:.4g} TFLOP/s"
            place = f'x="{label}" y="{y}" width="{length:.1f}" height="{bar - 2}"'
            parts.append(f'<rect {place} fill="{colour}"><title>{title}</title></rect>')
            parts.append(f'<text x="{label + length + 5:.1f}" y="{y + bar - 2}">{value:.3g}</text>')
            y += bar
        y += 9
    return f'<svg viewBox="0 0 {width} {y}" role="img" aria-label="TFLOP/s by problem">{"".join(parts)}</svg>'


def _table(records, names):
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    rows = []
    for record in records:
        best = max((peer["tflops"] for peer in record["peers"].values()), default=0)
        cells = []
        for name in names:
            peer = record["peers"].get(name)
            if not peer:
                cells.append(f'<td title="{escape(record["skipped"].get(name, ""))}">–</td>')
                continue
            chosen = ' class="best"' if peer["tflops"] == best else ""
            cells.append(f'<td{chosen} title="{peer["ms"]:.4g} ms, spread {peer["spread"] * 100:.1f} %">{peer["tflops"]:.3g}</td>')
        rows.append(f"<tr><td>{escape(record['problem'])}</td>{''.join(cells)}</tr>")
    return f'<div class="scroll"><table><tr><th>TFLOP/s</th>{head}</tr>{"".join(rows)}</table></div>'


def _errors(records, names):
    rows = []
    for record in records:
        for operand in record["peers"].get("varflash", {}).get("errors", {}):
            cells = []
            for name in names:
                error = record["peers"].get(name, {}).get("errors", {}).get(operand)
                cells.append(f'<td title="largest {error["max"]:.3g}">{error["rms"]:.2e}</td>' if error else "<td>–</td>")
            rows.append(f"<tr><td>{escape(record['problem'])}, {operand}</td>{''.join(cells)}</tr>")
    if not rows:
        return ""
    head = "".join(f"<th>{escape(name)}</th>" for name in names)
    return (
        "<h2>Errors against float64</h2><p>Root mean square, relative to that of the exact values.</p>"
        f'<div class="scroll"><table><tr><th></th>{head}</tr>{"".join(rows)}</table></div>'
    )


def render(run):
    names = [name for name in run["peers"] if any(name in record["peers"] for record in run["records"])]
    legend = "".join(
        f'<span><i style="background:{COLOURS[number % len(COLOURS)]}"></i>{escape(name)}</span>' for number, name in enumerate(names)
    )
    body = []
    for which in ("forward", "backward"):
        records = [record for record in run["records"] if record["pass"] == which and record["peers"]]
        if records:
            body.append(f'<h2>{which.capitalize()}</h2><p class="legend">{legend}</p>')
            body.append(f"<figure>{_plot(records, names)}<figcaption>TFLOP/s, visible pairs only</figcaption></figure>")
            body.append(_table(records, names))
    body.append(_errors(run["records"], names))
    facts = f"{run['device']}, torch {run['torch']}, CUDA {run['cuda']}, varflash {run['varflash']}, {run['date']}"
    title = "varflash beside its peers"
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>{title}</title><style>{STYLE}</style><h1>{title}</h1>'
        f'<p class="facts">{escape(facts)}<br><code>{escape(run["command"])}</code></p>{"".join(body)}</html>\n'
    )
