"""Which command writes a column or artifact, for error messages."""

MADE_BY = {
    "images": "viewkit pack SOURCE",
    "estimator": "viewkit estimator",
    "foreground": "viewkit generate",
    "genview": "viewkit generate",
    "histograms": "viewkit histograms",
    "pairs": "viewkit score",
    "quality_component": "viewkit quality",
    "quality": "viewkit quality",
    "audit": "viewkit audit",
}


def command_for(name: str, stage: str) -> str:
    """The command that writes `name`; `stage`, where it has a name that users choose."""
    return MADE_BY.get(name, f"viewkit {stage}")
