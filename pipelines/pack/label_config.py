"""Options of `viewkit label`."""

from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal


@dataclass(frozen=True, kw_only=True)
class LabelConfig:
    """Attach labels to images that were packed without; their keys, and all that was made from them, stay valid."""

    MAIN: ClassVar[tuple[str, ...]] = ("match",)

    match: Annotated[
        Literal["auto", "path", "name"],
        "what finds an image: its key or its path in the packed source, or its file's name alone, where only one has "
        "it; auto: the first, then the second",
    ] = "auto"
