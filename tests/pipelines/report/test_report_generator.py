"""What the page says of a generator of one's own, and of views by level."""

import numpy as np
from vs2fi_world import make_images

from viewkit.pipelines.report.generated import generator_findings, measures_table
from viewkit.shards.artifact import IDENTITY, Artifact, finish_artifact
from viewkit.shards.codecs import encode_json, encode_png
from viewkit.shards.files import make_folder, write_atomic
from viewkit.shards.identity import Identity, write_identity

ROW = {
    "level": 400, "images": 1064, "cosine": 0.5, "cosine_error": 0.01, "chance": 0.25, "diversity": 0.125,
    "diversity_error": 0.002, "frechet": 12.345, "floor": 1.2, "copied": 0.071, "colour": 0.05, "colour_error": 0.001,
}  # fmt: skip


def test_a_row_of_the_table_says_every_measure_with_its_error():
    missing = {**ROW, "diversity": None, "diversity_error": None, "frechet": None, "floor": None, "chance": None}
    table = measures_table("own, by level", [ROW, missing])
    assert table.rows[0] == (
        "400", "1,064", "0.500 ± 0.010", "0.250", "0.125 ± 0.002", "12.3", "1.2", "7 %", "0.050 ± 0.001",
    )  # fmt: skip
    assert table.rows[1][3:7] == ("–", "–", "–", "–")
    assert len(table.columns) == len(table.rows[0])


def test_a_generator_is_shown_by_its_table_and_its_sheet(tmp_path):
    folder = make_images(tmp_path / "d", count=2).path / "generator"
    make_folder(folder)
    facts = {"table": [ROW], "numbers": {"judge": "colour", "held_out": 64}}
    write_atomic(folder / "generator.json", encode_json(facts))
    write_atomic(folder / "samples.png", encode_png(np.zeros((66, 100, 3), np.uint8)))
    identity = Identity("generator", 1, {}, {}, {})
    write_identity(folder / IDENTITY, identity)
    finish_artifact(folder, identity.digest, {}, ())
    found = generator_findings(Artifact(folder, "generator"))
    (table,), ((shown, caption),) = found.tables, found.pictures
    assert "on 64 that it was not trained on, judged by colour" in table.title
    assert (shown.height, shown.width) == (66, 100) and caption.endswith("at levels 400")
