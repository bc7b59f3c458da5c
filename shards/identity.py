"""What makes two runs of a stage the same: stage, version, config and the digests of the inputs.

Never a machine's path, a worker count, a device or a batch size. A folder holds one identity; a run with another one is
refused, and the fields that differ are named.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import metadata
from pathlib import Path
from typing import Any

from viewkit.shards import schema
from viewkit.shards.document import digest, read_document, write_document, write_first_document
from viewkit.shards.errors import DataError, RefusedError
from viewkit.shards.schema import require

COLUMN = "column.json"
"""Name of the document in a column's folder that says what it is; an artifact's is `artifact.IDENTITY`."""
SOFTWARE = (
    "viewkit",
    "torch",
    "torchvision",
    "timm",
    "diffusers",
    "transformers",
    "numpy",
    "pillow",
    "simplejpeg",
)


@dataclass(frozen=True)
class Earlier:
    """What a column was before it grew: the digest of its identity, its inputs and its plan at that time."""

    identity: str
    inputs: Mapping[str, str]
    plan: Mapping[str, int]

    def content(self) -> dict[str, Any]:
        return {"identity": self.identity, "inputs": dict(self.inputs), "plan": dict(self.plan)}


@dataclass(frozen=True)
class Identity:
    """inputs: name -> content digest. plan: what the listing fixed, e.g. ``{"shards": 3, "rows": 3000}``.

    earlier: of a column that has grown, what it was before, the first state first; its shards stay as they are.
    """

    stage: str
    version: int
    config: Mapping[str, Any]
    inputs: Mapping[str, str]
    plan: Mapping[str, int]
    earlier: tuple[Earlier, ...] = ()

    def content(self) -> dict[str, Any]:
        found = {
            "stage": self.stage,
            "version": self.version,
            "config": dict(self.config),
            "inputs": dict(self.inputs),
            "plan": dict(self.plan),
        }
        return {**found, "earlier": [each.content() for each in self.earlier]} if self.earlier else found

    @property
    def digest(self) -> str:
        return digest(self.content())

    def digest_for(self, shard: int) -> str:
        """The digest that the receipt of this shard names: of the state in which the shard was planned."""
        return next((each.identity for each in self.earlier if shard < each.plan["shards"]), self.digest)

    def as_grown_from(self, found: "Identity") -> "Identity":
        """This identity for a column that was `found` before and keeps its shards."""
        return replace(self, earlier=(*found.earlier, Earlier(found.digest, found.inputs, found.plan)))

    def is_grown_from(self, found: "Identity") -> bool:
        return bool(self.earlier) and self.as_grown_from(found).earlier == self.earlier


def software_versions() -> dict[str, str]:
    """Versions of what may change a result's last bits; kept beside the identity, not part of it."""
    versions = {}
    for name in SOFTWARE:
        try:
            versions[name] = metadata.version(name)
        except metadata.PackageNotFoundError:
            versions[name] = "not installed"
    return versions


def write_identity(path: Path, identity: Identity, notes: Mapping[str, str] | None = None) -> bool:
    """Write it unless there is one; whether it was written.

    notes: what else may change a result's last bits, kept beside the versions of the packages.
    """
    software = {**software_versions(), **(notes or {})}
    return write_first_document(path, {**identity.content(), "identity": identity.digest, "software": software})


def rewrite_identity(path: Path, identity: Identity, remedy: str) -> None:
    """Write the identity of a column that has grown, or has not after all, in place of the one that is there; the
    software that is noted stays."""
    software = read_document(path, remedy).get("software", {})
    write_document(path, {**identity.content(), "identity": identity.digest, "software": software})


FIELDS = {
    "stage": schema.text,
    "version": schema.whole(0, 10**6),
    "config": schema.table,
    "inputs": schema.text_table,
    "plan": schema.values(schema.whole(0, schema.MAX_ROWS)),
}
EARLIER = {"identity": schema.text, "inputs": FIELDS["inputs"], "plan": FIELDS["plan"]}


def read_identity(path: Path, remedy: str) -> Identity:
    """`DataError` for a document that is damaged, or that does not hold an identity."""
    content = read_document(path, remedy)
    require(content, FIELDS, path, remedy)
    earlier: list[Earlier] = []
    if "earlier" in content:
        require(content, {"earlier": schema.tables}, path, remedy)
        for each in content["earlier"]:
            require(each, EARLIER, path, remedy)
            earlier.append(Earlier(**{name: each[name] for name in EARLIER}))
            rows = [state.plan.get("shards", -1) for state in earlier]
            if rows != sorted(set(rows)) or rows[0] < 0 or rows[-1] >= content["plan"].get("shards", 0):
                raise DataError(f"{path}: damaged, its 'earlier' states do not grow; {remedy}")
    fields = {name: content[name] for name in ("stage", "version", "config", "inputs", "plan")}
    return Identity(**fields, earlier=tuple(earlier))


def software_changes(path: Path, notes: Mapping[str, str], remedy: str) -> list[str]:
    """What the document at `path` was written with and is not in use now, a phrase each. notes: as `write_identity`."""
    content = read_document(path, remedy)
    require(content, {"software": schema.text_table}, path, remedy)
    there, now = content["software"], {**software_versions(), **notes}
    return [
        f"{name.replace('_', ' ')} was {there.get(name, 'not noted')} and is {now.get(name, 'not noted')}"
        for name in sorted({*there, *now})
        if there.get(name) != now.get(name)
    ]


OTHER_FILES = "its source has other files now (some are new, gone or of another size)"
OTHER_MOSAICS = "its source has other files now, or --part-px or --mosaics is another"


def refuse_other(
    path: Path, found: Identity, wanted: Identity, *, elsewhere: str = "another dataset", also: Sequence[str] = ()
) -> None:
    """`RefusedError` naming every field in which the folder's identity and the asked one differ.

    elsewhere: where the result could go instead. also: what was made from the folder, and would have to go, too.
    """
    found_ones = _differences(replace(found, earlier=()).content(), replace(wanted, earlier=()).content())
    names = {name for name, _, _ in found_ones}
    told = names - {("inputs", "listing")} if ("inputs", "mosaic") in names else names  # the listing follows from it
    differences = [_in_words(name, there, now) for name, there, now in found_ones if name in told]
    if "mosaic" in wanted.inputs and "mosaic" not in {name[-1] for name in names}:
        differences = [text.replace(OTHER_FILES, OTHER_MOSAICS) for text in differences]
    if differences:
        raise RefusedError(
            f"{wanted.stage}: {path.parent} was written with other settings: {'; '.join(differences)}; use the same "
            f"settings, {elsewhere}, or add --redo, which deletes {path.parent}{and_more(also)} and writes it anew"
        )


def and_more(names: Sequence[str]) -> str:
    """What was made from a folder, as the rest of a sentence that names the folder."""
    return f" and what was made from it ({', '.join(names)})" if names else ""


def _differences(there: Any, now: Any, *above: str) -> list[tuple[tuple[str, ...], Any, Any]]:
    if isinstance(there, dict) and isinstance(now, dict):
        return [
            difference
            for name in sorted({*there, *now})
            for difference in _differences(there.get(name, "absent"), now.get(name, "absent"), *above, name)
        ]
    return [] if there == now else [(above, there, now)]


def _in_words(name: tuple[str, ...], there: Any, now: Any) -> str:
    """A difference for people; digests tell them nothing."""
    if name == ("inputs", "listing"):
        return OTHER_FILES
    if name[0] == "inputs" and "absent" in (there, now):
        return (
            f"'{name[1]}' {'was not used there and is now' if there == 'absent' else 'was used there and is not now'}"
        )
    if name[0] == "inputs" and not (is_digest(there) and is_digest(now)):
        return f"'{name[1]}' is {_shown(there)} there and {_shown(now)} now"
    if name[0] == "inputs":
        return f"it was made from another '{name[1]}' than there is now"
    if name[0] == "plan":
        return f"it has {there} {name[1]} and would have {now} now"
    return f"{'.'.join(name)} is {_shown(there)} there and {_shown(now)} now"


def is_digest(value: Any) -> bool:
    """Whether a value is hexadecimal digits alone, as digests are."""
    return isinstance(value, str) and set(value) <= set("0123456789abcdef")


def _shown(value: Any) -> str:
    return repr(value) if isinstance(value, str) else str(value)
