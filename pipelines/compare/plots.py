"""The paired differences as a picture."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from viewkit.shards.files import write_atomic
from viewkit.shards.spans import spanned

DIFFERENCES = "differences.png"


@spanned("plot")
def plot_differences(result: Mapping[str, Any], path: Path) -> None:
    """A panel a probe: every seed's difference as a dot, the mean with its t interval, and the band that matters."""
    import io

    from matplotlib.figure import Figure

    rows = result["differences"]
    probes = list(result["arms"][0]["probes"])
    height = 0.6 + 0.34 * max(1, len(rows))
    figure = Figure(figsize=(4.2 * len(probes), height), layout="constrained")
    axes = figure.subplots(1, len(probes), sharey=True, squeeze=False)[0]
    for panel, probe in zip(axes, probes, strict=True):
        panel.axvspan(-result["matters"], result["matters"], color="0.93")
        panel.axvline(0, color="0.4", linewidth=0.8)
        for place, row in enumerate(rows):
            found = row["probes"][probe]
            colour = "C1" if row["of_cost"] else "C0"
            panel.plot(found["differences"], [place] * len(found["differences"]), "o", color=colour, alpha=0.4, ms=4)
            if found["low"] is not None:
                panel.plot([found["low"], found["high"]], [place, place], color=colour, linewidth=1.6)
            panel.plot([found["mean"]], [place], "D", color=colour, ms=5)
        panel.set(title=probe, xlabel="points")
    axes[0].set_yticks(range(len(rows)), [f"{row['label']} - {row['against']}" for row in rows])
    axes[0].invert_yaxis()
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=120, metadata={"Software": None})
    write_atomic(path, buffer.getvalue())
