"""The generators by name, one card each: what options, help texts and encoders need to know, without torch.

The table lies in this low room because two rooms read it: `generate` creates the generators, and `encoders` opens the
image encoders in their folders. Adding a generator is its own file and one line here (docs/extend.md).
"""

from dataclasses import dataclass
from importlib import import_module
from typing import Any


@dataclass(frozen=True, kw_only=True)
class GeneratorCard:
    """made_by: ``module:Class`` of the `Generator`. help: what ``--help`` says about it. guidance: its default scale.

    encoder: ``module:NAME`` of the image encoder in its folder (see `encoders.clip_folders.ClipFolder`), which
    ``--encoder`` then offers under the generator's name, and which is the default with this generator; None where it
    has no encoder of its own, the default then being the estimator. expensive: whether a view costs so much that
    finished rows of an interrupted shard are kept (see `viewkit.shards.spool`). reads: artifacts of the dataset
    that hold its weights.
    """

    made_by: str
    help: str
    guidance: float = 1.0
    encoder: str | None = None
    needs_weights: bool = False
    expensive: bool = True
    reads: tuple[str, ...] = ()


_HOME = "viewkit.pipelines.generate.generators"

GENERATORS: dict[str, GeneratorCard] = {
    "retrieval": GeneratorCard(
        made_by=f"{_HOME}.retrieval:Retrieval", help="the nearest other image of the dataset", expensive=False
    ),
    "own": GeneratorCard(
        made_by=f"{_HOME}.own:Own",
        help="the one that 'viewkit generator' has trained on the dataset",
        guidance=2.0,
        reads=("estimator", "generator"),
    ),
    "unclip": GeneratorCard(
        made_by=f"{_HOME}.unclip:Unclip",
        help="Stable unCLIP",
        guidance=10.0,
        encoder=f"{_HOME}.unclip:ENCODER",
        needs_weights=True,
    ),
    "kandinsky": GeneratorCard(
        made_by=f"{_HOME}.kandinsky:Kandinsky",
        help="Kandinsky 2.2",
        guidance=4.0,
        encoder=f"{_HOME}.kandinsky:ENCODER",
        needs_weights=True,
    ),
    "ip-adapter": GeneratorCard(
        made_by=f"{_HOME}.ip_adapter:IpAdapter",
        help="Stable Diffusion with IP-Adapter",
        guidance=7.5,
        encoder=f"{_HOME}.ip_adapter:ENCODER",
        needs_weights=True,
    ),
}


def default_encoder(generator: str) -> str:
    """Name of the encoder that a generator uses unless ``--encoder`` names another one."""
    return "estimator" if GENERATORS[generator].encoder is None else generator


def folder_encoders() -> dict[str, str]:
    """``module:NAME`` of every image encoder that lies in a generator's folder, by the encoder's name."""
    return {name: card.encoder for name, card in GENERATORS.items() if card.encoder is not None}


def load(place: str) -> Any:
    """What a card's ``module:NAME`` names; only that module is imported."""
    module, _, name = place.partition(":")
    return getattr(import_module(module), name)
