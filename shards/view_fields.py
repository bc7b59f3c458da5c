"""Several generated views in one row of a column: the first as a single one would lie there, the others numbered.

``KEY.jpg, KEY.1.jpg, KEY.2.jpg``: a reader that expects one image per row finds the first; there is one row per key.
"""

from collections.abc import Mapping, Sequence

from viewkit.shards.codecs import image_field


def fields_of_views(views: Sequence[Mapping[str, bytes]]) -> dict[str, bytes]:
    """Fields of a row. views: one encoded image each, by its extension."""
    fields: dict[str, bytes] = {}
    for number, view in enumerate(views):
        extension, content = image_field(view)
        fields[f"{number}.{extension}" if number else extension] = content
    return fields


def views_of_fields(fields: Mapping[str, bytes]) -> list[dict[str, bytes]]:
    """The views of a row, in order, each as the one image field that `shards.codecs.decode_image` takes."""
    extension, content = image_field(fields)
    views = [{extension: content}]
    while more := [name for name in fields if name.startswith(f"{len(views)}.")]:
        views.append({more[0].partition(".")[2]: fields[more[0]]})
    return views
