import io
import re
import shutil
import tomllib
from html.parser import HTMLParser

import numpy as np
import pytest

from viewkit.cli.commands import PIPELINE
from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.pairs.column import read_pairs
from viewkit.pipelines.pairs.order import pair_index
from viewkit.pipelines.pretrain.config import PretrainConfig, resolve
from viewkit.pipelines.report.accuracy import accuracy_tables, percent
from viewkit.pipelines.report.config import ReportConfig
from viewkit.pipelines.report.inventory import command_of
from viewkit.pipelines.report.page import toml
from viewkit.pipelines.report.pairs import make_galleries
from viewkit.pipelines.report.pictures import BYTES_PER_PIXEL, picture
from viewkit.pipelines.report.runs import hard_view_table
from viewkit.pipelines.report.stage import ReportStage
from viewkit.pipelines.training.method import is_random, method_of
from viewkit.pipelines.views.recipe import neutral_recipes
from viewkit.shards.codecs import encode_json, encode_png
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ConfigError, DataError

CPU = Execution(device="cpu")
SMALL = ReportConfig(pairs=3, generated=4, view_px=32)
VOID = {"meta", "img", "br", "link", "input", "hr", "use", "path"}


class Page(HTMLParser):
    """Every element with its attributes; fails where an element is closed that is not the open one."""

    def __init__(self, text):
        super().__init__(convert_charrefs=True)
        self.open, self.elements, self.text = [], [], []
        self.feed(text)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.elements.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        if tag in VOID:
            return
        assert self.open and self.open.pop() == tag, f"</{tag}> closes nothing"

    def handle_data(self, data):
        self.text.append(data)

    def all(self, tag):
        return [attributes for name, attributes in self.elements if name == tag]

    @property
    def words(self):
        return " ".join(" ".join(self.text).split())


def report(dataset, config=SMALL):
    run_stage(ReportStage(), config, dataset, CPU)
    return dataset.artifact("report").path("index.html").read_text()


@pytest.fixture(scope="module")
def html(everything):
    return report(everything)


@pytest.fixture(scope="module")
def page(html):
    return Page(html)


def test_the_page_is_one_whole_document_that_loads_nothing(html, page):
    assert html.lstrip().startswith("<!DOCTYPE html>")
    assert not page.all("script") and not page.all("link")
    assert all(each["src"].startswith("data:image/jpeg;base64,") for each in page.all("img"))
    links = [attributes["href"] for _, attributes in page.elements if "href" in attributes]
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(ids) == len(set(ids)) and {link.removeprefix("#") for link in links} <= set(ids)
    assert not re.search(r"url\((?!#)|@import|//(?!www\.w3\.org/2000/svg)", re.sub(r"data:image/[^\"]*", "", html))


def test_everything_a_dataset_holds_is_shown(page):
    for heading in ("Accuracy", "Dataset", "Pairs", "Generated views", "Histograms", "Training", "Foreground", "Audit"):
        assert heading in page.words
    for title in (
        "Low Semantic Consistency",
        "High Semantic Consistency",
        "Low Alignment Level",
        "Loss, moco_v3",
        "What goes",
        "12.5",
    ):
        assert title in page.words
    assert not [each for each in page.all("div") if each.get("class") == "missing"]
    assert "25" not in page.words.split()[:4] and "24 images" in page.words and "1 undecodable" in page.words


def test_it_can_be_read_without_seeing_it(page):
    assert all(each["alt"].strip() for each in page.all("img"))
    assert all(each["scope"] in ("col", "row") for each in page.all("th"))
    assert len(page.all("svg")) == len(page.all("figcaption")) - 4 * 3 - 4  # one more for each pair and generated view
    assert all(each["aria-hidden"] == "true" for each in page.all("svg"))
    assert page.all("html")[0]["lang"] == "en"


def test_the_page_has_the_numbers_of_the_terminal(page, everything):
    for table in accuracy_tables(everything):
        for row in table.rows:
            numbers = " ".join(percent(row.top1[probe]) for probe in table.probes)
            assert f"{row.name} {row.method} {numbers}" in page.words
        for note in table.notes():
            assert note in page.words


def test_levels_are_counted(page):
    assert (
        "Share of rows at each noise level. 0: 20.8 %; 100: 20.8 %; 200: 20.8 %; 300: 20.8 %; 400: 16.7 %."
        in page.words
    )


def test_the_same_dataset_gives_the_same_bytes(html, everything, tmp_path):
    copy = tmp_path / "elsewhere"
    shutil.copytree(everything.path, copy, ignore=shutil.ignore_patterns("report", ".locks"))
    run_stage(ReportStage(), SMALL, Dataset(copy), CPU)
    assert (copy / "report" / "index.html").read_text() == html


def test_with_images_alone_it_says_what_is_missing_and_which_command_makes_it(images_only):
    words = Page(report(images_only)).words
    for command in ("estimator", "generate", "histograms", "score"):
        assert f"viewkit {command} DATASET" in words
    assert "viewkit pretrain DATASET --name NAME" in words and "no finished run yet" in words
    assert "No pairs have been scored. This makes it: viewkit score DATASET" in words


@pytest.mark.parametrize("part", ["make_genview", "make_pairs", "make_histograms", "make_foreground"])
def test_any_part_alone_can_be_shown(images_only, build, part):
    getattr(build, part)(images_only)
    Page(report(images_only))


def test_a_report_made_again_shows_what_has_been_added(images_only, build):
    assert "No pairs have been scored" in Page(report(images_only)).words
    build.make_pairs(images_only)
    assert "No pairs have been scored" not in Page(report(images_only)).words


def test_a_run_without_an_evaluation_is_listed_with_the_command(images_only, build):
    build.make_run(images_only, "first")
    words = Page(report(images_only)).words
    assert "viewkit evaluate DATASET/runs/first TEST_DATASET" in words and "Loss, moco_v3" in words


def test_the_estimators_loss_is_shown_exit_by_exit(images_only, build):
    lines = [{"step": 10 * n, "loss": 9.0, "loss_top": 4 / n, "loss_exit_1": 5 / n, "loss_exit_2": 3.0} for n in (1, 2)]
    log = b"".join(encode_json(line) for line in lines)
    build.write_artifact(images_only, "estimator", "estimator", {"preset": "x"}, {"metrics.jsonl": log})
    assert "head from 4 to 2; exit 1 from 5 to 2.5; exit 2 from 3 to 3." in Page(report(images_only)).words


def test_an_unfinished_column_is_said_to_be_unfinished(images_only, build):
    build.make_pairs(images_only)
    (images_only.path / "pairs" / "000001.json").unlink()
    words = Page(report(images_only)).words
    assert "unfinished: viewkit score DATASET" in words and "It is unfinished" in words


def test_pairs_of_generated_views_are_left_out_where_these_are_gone(images_only, build):
    build.make_pairs(images_only, source=1)
    assert "No pair to show" in Page(report(images_only)).words


def test_pairs_are_shown_with_the_generated_views_that_they_were_cropped_from(images_only, build, monkeypatch):
    monkeypatch.setattr(build, "NUM_ROWS", 4)
    build.make_genview(images_only)  # has not all of the rows
    monkeypatch.undo()
    build.make_genview(images_only, "genview_other", seed=2)
    build.make_pairs(images_only, source=1, inputs=build.genview_digest(images_only, "genview_other"))
    html = report(images_only)
    sample = read_pairs(images_only.column("pairs"), 100)
    columns = (images_only.column(name) for name in ("images", "genview_other"))
    (first, *_) = make_galleries(sample, *columns, count=3, side_px=32)
    pictures = [picture.uri for pair in first.examples for picture in (*pair.views, pair.sources[1].picture)]
    assert len(pictures) == 9 and all(uri in html for uri in pictures)


def test_names_are_shown_and_never_run(images_only, build, monkeypatch):
    monkeypatch.setattr(build, "genview_facts", lambda k: {"foreground_share": 0.5, "level": 0, "generator": build.BAD})
    build.make_genview(images_only)
    build.make_run(images_only, build.BAD, policy=f"'\"{build.BAD}</pre>")
    build.make_eval(images_only, build.BAD, (0.5, 0.5, 0.5))
    page = Page(report(images_only))
    assert page.words.count(build.BAD) >= 6  # accuracy, dataset, reject, generator, legend or caption, config
    assert not [name for _, attributes in page.elements for name in attributes if name.startswith("on")]
    assert all(each["src"].startswith("data:") for each in page.all("img"))


@pytest.mark.slow
def test_the_largest_page_stays_below_3_mb(tmp_path, build, monkeypatch):
    noise = np.random.default_rng(0).integers(0, 256, (24, 90, 90, 3), dtype=np.uint8)
    monkeypatch.setattr(build, "pictures", lambda count, seed=0: [encode_png(each) for each in noise[:count]])
    dataset = build.make_images(tmp_path / "noise")
    build.make_genview(dataset)
    build.make_pairs(dataset, source=1, inputs=build.genview_digest(dataset))
    assert len(report(dataset, ReportConfig(pairs=12, generated=16, view_px=128))) < 3_000_000


def test_a_picture_keeps_to_its_bytes():
    noise = np.random.default_rng(0).integers(0, 256, (64, 64, 3), dtype=np.uint8)
    shown = picture(noise, "noise")
    assert len(shown.uri) * 3 / 4 <= BYTES_PER_PIXEL * 64 * 64 + 100 and (shown.height, shown.width) == (64, 64)


def test_a_config_is_shown_as_toml_that_reads_back():
    config = {"a": 'x"\\\n\x7f', "b": 1.5, "c": True, "d": None, "e": 3, "f": [1, 2]}
    assert tomllib.loads(toml(config)) == {name: value for name, value in config.items() if value is not None}


def test_without_a_dataset_there_is_no_report(tmp_path):
    with pytest.raises(DataError, match="no such dataset"):
        run_stage(ReportStage(), SMALL, Dataset(tmp_path / "none"), CPU)


@pytest.mark.parametrize("option", [{"pairs": 0}, {"pairs": 99}, {"view_px": 8}, {"sample": 0}, {"seed": -1}])
def test_options_out_of_range_are_refused_by_name(option):
    (name,) = option
    with pytest.raises(ConfigError, match=f"report: {name} is"):
        ReportConfig(**option)


@pytest.mark.slow
def test_a_run_that_logged_its_views_gets_a_table_of_what_made_pairs_hard(images_only, build):
    rng, pairs = np.random.default_rng(0), 6
    recipes = np.repeat(neutral_recipes(40, 32)[:, None], 4, axis=1)
    iou = rng.uniform(0, 1, (40, pairs)).astype(np.float32)
    log = io.BytesIO()
    chosen = pair_index(4)[iou.argmin(axis=1)]
    arrays = {"recipes": recipes, "sizes_px": np.full((40, 4, 2), 32), "views": chosen, "losses": -iou, "iou": iou}
    np.savez_compressed(log, step=np.array(0), fields=np.array(["x"]), **arrays)
    folder = images_only.path / "runs" / "hard"
    (folder / "views").mkdir(parents=True)
    (folder / "views" / "00000000.npz").write_bytes(log.getvalue())
    build.make_run(images_only, "hard", select="hard")
    table = hard_view_table(images_only.artifact("runs/hard"))
    assert table.rows[0][0] == "iou" and "100 % of them the chosen pair overlaps least" in table.note
    run_stage(ReportStage(), ReportConfig(), images_only, CPU)
    assert "What made pairs hard: hard" in (images_only.path / "report" / "index.html").read_text()


def test_the_method_names_everything_that_makes_pairs_and_random_is_nothing_else():
    plain = resolve(PretrainConfig(framework="moco_v2")).values()
    assert is_random(plain) and method_of(plain) == "moco_v2, random"
    cropped = {**plain, "crop": "torchvision"}
    assert is_random(cropped) and method_of(cropped) == "moco_v2, random, crop torchvision"
    for options, words in (
        ({"select": "hard"}, "moco_v2, hard, of 4 views"),
        ({"alpha": 0.5, "generated": "both"}, "moco_v2, random, generated 0.5 (both)"),
        ({"select": "stored", "weights": "quality"}, "moco_v2, stored, quality weights"),
        ({"joint_area": 0.0}, "moco_v2, random, joint crops 0"),
        ({"views_per_side": 2, "multi_view": "dsf"}, "moco_v2, random, dsf of 2 + 2 views"),
        ({"multi_view": "dsf"}, "moco_v2, random, dsf of 1 + 1 views"),
        ({"max_iou": 0.3, "max_iou_end": 0.5}, "moco_v2, random, overlap at most 0.3, at the end 0.5"),
        ({"max_iou": 0.3, "max_iou_alternating": True}, "moco_v2, random, overlap at most 0.3, alternating"),
        ({"crop_box": 0.1}, "moco_v2, random, crop box 0.1"),
        ({"select": "vs2fi", "filter_share": 0.2}, "moco_v2, vs2fi, filter_share 0.2"),
    ):
        config = resolve(PretrainConfig(framework="moco_v2", **options)).values()
        assert method_of(config) == words and not is_random(config)


def test_pairs_of_other_images_are_named_and_not_shown(tmp_path, build):
    dataset = build.make_images(tmp_path / "d")
    build.make_pairs(dataset, inputs={"images": "0" * 64})
    with pytest.raises(DataError, match=r"pairs: it was made from another 'images'.*rerun 'viewkit score'"):
        run_stage(ReportStage(), SMALL, dataset, CPU)


def test_every_command_on_the_page_exists(html):
    """`command_of` gives, for every stage, the command that runs it; the page tells how to take the other sign."""
    commands = {spec.name: {step.stage_class().name for step in spec.steps} for spec in PIPELINE}
    for stages in commands.values():
        for stage in stages:
            said = command_of(stage, stage).split()
            assert said[0] == "viewkit" and stage in commands[said[1]], f"{stage}: {' '.join(said)}"
    assert command_of("pack", "images") == "viewkit pack SOURCE DATASET"
    assert command_of("evaluate", "runs/my run/eval") == "viewkit evaluate DATASET/runs/'my run' TEST_DATASET"
    assert "viewkit generate DATASET --sign +</code>" in html
