"""The page in a real browser: what is clicked, dragged and typed in it, and that its numbers are viewkit's."""

import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from browser import PHONE, Watched
from small_datasets import CPU

from viewkit.cli.commands import PIPELINE
from viewkit.cli.options import option_name
from viewkit.pipelines.browse.config import BrowseConfig
from viewkit.pipelines.browse.stage import BrowseStage
from viewkit.pipelines.engine.config import fields_of
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.engine.seeds import smallest
from viewkit.pipelines.pairs.select import vs2fi_survivors
from viewkit.pipelines.score.config import RescoreConfig
from viewkit.pipelines.score.rescore import RescoreStage
from viewkit.pipelines.vs2fi.artifact import Histograms
from viewkit.pipelines.vs2fi.threshold import consistency_threshold
from viewkit.shards.codecs import decode_npy

pytestmark = pytest.mark.slow

GROUPS, PAIRS = 60, 6
MOST_IMAGES = 60


def opened(browser, dataset, page, places=None, **options):
    config = BrowseConfig(points=GROUPS * PAIRS, pairs=30 * PAIRS)
    run_stage(BrowseStage(**(places or {})), config, dataset, CPU)
    copy = page / "page.html"
    copy.write_bytes(dataset.artifact("browse").path("index.html").read_bytes())
    return Watched(browser, copy, **options)


def settle(page):
    """After the gallery, which follows the plots a moment later."""
    page.wait_for_timeout(250)
    assert page.evaluate("document.images.length") <= MOST_IMAGES


def numbers(page, expression):
    return np.array(page.evaluate(f"Array.from({expression})"))


def drag(page, element, start, end):
    box = page.locator(element).first.bounding_box()
    for place, move in ((start, page.mouse.move), (end, page.mouse.move)):
        move(box["x"] + place[0] * box["width"], box["y"] + place[1] * box["height"], steps=4)
        page.mouse.down() if place is start else page.mouse.up()


def test_the_page_reads_the_indicators_off_as_rescore_does(chromium, scored, tmp_path):
    gamma, k_al = 0.7, 4
    run_stage(RescoreStage(column="pairs_at"), RescoreConfig(gamma=gamma), scored, CPU)
    pairs, again = scored.column("pairs"), scored.column("pairs_at")
    keys = smallest(pairs.keys(), 100)
    places = [(key, round_) for round_ in range(2) for key in keys][:GROUPS]

    def stored(column):
        rows = {key: decode_npy(column.fields(column.place_of[key])["scores.npy"]) for key in keys}
        return np.stack([rows[key][round_] for key, round_ in places])

    with opened(chromium, scored, tmp_path) as watched:
        page = watched.page
        assert (numbers(page, "viewkit.axes.level.values") == stored(pairs)[..., 1].ravel()).all()
        page.evaluate("viewkit.setThresholds({gamma: viewkit.state.gamma})")  # at the column's own
        assert (numbers(page, "viewkit.axes.level.values") == stored(pairs)[..., 1].ravel()).all()
        page.fill("#gamma-number", str(gamma))
        page.press("#gamma-number", "Tab")
        page.fill("#kal-number", str(k_al))
        page.press("#kal-number", "Tab")
        levels, consistency = (numbers(page, f"viewkit.axes.{name}.values") for name in ("level", "consistency"))
        assert (levels == stored(again)[..., 1].ravel()).all() and not (levels == stored(pairs)[..., 1].ravel()).all()
        np.testing.assert_array_equal(consistency.astype(np.float32), stored(again)[..., 0].ravel())
        histograms = Histograms.load(scored.artifact("histograms"))
        for share in (0.0, 0.08, 0.31, 1.0):
            page.fill("#share-number", str(100 * share))
            page.press("#share-number", "Tab")
            k_sc, _ = consistency_threshold(histograms, share)
            assert page.evaluate("viewkit.state.kSc") == k_sc
            scores = stored(again)
            kept = vs2fi_survivors(scores[..., 0], scores[..., 1], k_sc, k_al)
            assert (numbers(page, "viewkit.verdicts") == 0).tolist() == kept.ravel().tolist()
        page.fill("#share-number", "8")
        page.press("#share-number", "Tab")
        settle(page)
        rescore, pretrain = page.inner_text("#command").splitlines()
        assert rescore == "viewkit rescore DATASET --gamma 0.7 --column pairs_gamma_0_7"
        assert "--select vs2fi --pairs pairs_gamma_0_7 --policy strengthened --filter-share 0.08" in pretrain


def test_pairs_of_another_column_are_rescored_from_it(chromium, scored, tmp_path):
    run_stage(RescoreStage(column="pairs_b"), RescoreConfig(gamma=0.5), scored, CPU)
    with opened(chromium, scored, tmp_path, {"column": "pairs_b"}) as watched:
        watched.page.evaluate("viewkit.setThresholds({gamma: 0.7})")
        settle(watched.page)
        rescore, pretrain = watched.page.evaluate("viewkit.commandText()").splitlines()
        assert rescore == "viewkit rescore DATASET --gamma 0.7 --pairs pairs_b --column pairs_b_gamma_0_7"
        assert "--pairs pairs_b_gamma_0_7" in pretrain


def test_brushes_filters_and_keys_select_what_they_say(chromium, scored, tmp_path, build):
    with opened(chromium, scored, tmp_path) as watched:
        page = watched.page
        settle(page)
        page.select_option("#verdict", "")
        assert page.inner_text("#count").startswith("360 of 360 pairs")
        drag(page, "#histograms canvas >> nth=3", (0.25, 0.5), (0.6, 0.5))
        overlap = numbers(page, "viewkit.axes.overlap.values").astype(float)
        low, high = page.evaluate("viewkit.axes.overlap.brush")
        inside = (overlap >= low) & (overlap <= high)
        assert 0 < inside.sum() < 360 and (numbers(page, "viewkit.selected") == inside).all()
        page.keyboard.press("Escape")  # not in the plot: changes nothing
        assert numbers(page, "viewkit.selected").sum() == inside.sum()
        page.focus("#plot")
        page.keyboard.press("Escape")
        assert page.inner_text("#count").startswith("360 of 360")
        drag(page, "#plot", (0.3, 0.1), (0.8, 0.7))
        chosen = numbers(page, "viewkit.selected").astype(bool)
        consistency, levels = (numbers(page, f"viewkit.axes.{name}.values") for name in ("consistency", "level"))
        from_x, to_x = page.evaluate("viewkit.axes.consistency.brush")
        from_y, to_y = page.evaluate("viewkit.axes.level.brush")
        assert (from_y, to_y) == (int(from_y), int(to_y))  # whole levels
        inside = (consistency >= from_x) & (consistency <= to_x) & (levels >= from_y) & (levels <= to_y)
        assert 0 < inside.sum() < 360 and (chosen == inside).all()
        page.click("#reset")
        page.select_option("#verdict", "")
        page.fill("#histograms .histogram:first-child input >> nth=0", "0.5")
        page.press("#histograms .histogram:first-child input >> nth=0", "Tab")
        assert (numbers(page, "viewkit.selected") == (consistency >= 0.5)).all()
        page.click("#reset")
        page.select_option("#verdict", "")
        page.select_option("#class", "1")
        keys = page.evaluate("viewkit.selectedKeys()")
        assert sorted(keys) == sorted(key for k, key in enumerate(build.KEYS) if k % 3 == 1)
        page.fill("#key", "ROW1")
        keys = page.evaluate("viewkit.selectedKeys()")
        assert keys and all(key.startswith("row1") for key in keys)
        with page.expect_download() as waiting:
            page.click("#download-keys")
        assert waiting.value.path().read_text().split() == keys
        settle(page)


def test_a_pair_is_seen_by_click_and_by_key(chromium, scored, tmp_path):
    with opened(chromium, scored, tmp_path) as watched:
        page = watched.page
        settle(page)
        page.focus("#plot")
        seen = []
        for key in ("ArrowRight", "ArrowRight", "ArrowUp", "ArrowLeft"):
            page.keyboard.press(key)
            seen.append(page.evaluate("viewkit.state.pair"))
        place = numbers(page, "viewkit.axes.consistency.place")
        assert place[seen[0]] <= place[seen[1]] and place[seen[3]] <= place[seen[2]] and len(set(seen)) >= 3
        said = page.inner_text("#said")
        assert "Semantic Consistency" in said and "Kept" in said
        body = page.locator("#pair-body")
        assert body.locator("img").count() == 4 and body.locator(".box").count() == 2
        assert [each.get_attribute("alt") for each in body.locator("img").all()] == [
            "the image, with the crops outlined", "the generated view", "view A", "view B",
        ]  # fmt: skip
        assert body.locator("tbody tr").count() == 6  # the head and five exits
        page.wait_for_function("[...document.images].every((each) => each.complete && each.naturalWidth)")
        page.select_option("#verdict", "1")
        settle(page)
        tile = page.locator(".tile").first
        tile.click()
        assert tile.get_attribute("aria-current") == "true" and "Left out by Semantic Consistency" in body.inner_text()
        page.select_option("#verdict", "2")
        settle(page)
        page.locator(".tile").first.focus()
        page.keyboard.press("Enter")
        assert "Left out by Alignment Level" in body.inner_text()
        box = page.locator("#plot").bounding_box()
        page.mouse.click(box["x"] + box["width"] * 0.6, box["y"] + box["height"] * 0.35)
        page.click("#next")
        settle(page)


def test_names_with_markup_are_text(chromium, scored, tmp_path, build):
    with opened(chromium, scored, tmp_path) as watched:
        page = watched.page
        page.select_option("#verdict", "")
        page.fill("#key", "onerror")
        settle(page)
        page.locator(".tile").first.click()
        assert page.inner_text("#pair-body code") == build.BAD and build.BAD in page.inner_text("#tiles")
        assert page.inner_text("#title") == "d & <b>: pairs"
        assert build.CLASSES[1] in page.locator("#class option").all_inner_texts()
        assert page.evaluate("window.hacked") is None and page.locator("img[src='x']").count() == 0


def test_what_the_page_says_to_type_exists(chromium, scored, tmp_path):
    known = {
        spec.name: {option_name(each.name) for each in (*fields_of(spec.config_class()), *spec.arguments)}
        for spec in PIPELINE
    }
    for places in ({}, {"column": "pairs_drawn"}, {"run": "hard"}):
        with opened(chromium, scored, tmp_path, places) as watched:
            settle(watched.page)
            for line in watched.page.inner_text("#command").splitlines():
                words = shlex.split(line)
                assert words[:3] == ["viewkit", words[1], "DATASET"]
                assert {word for word in words if word.startswith("--")} <= known[words[1]]


@pytest.mark.parametrize("places", [{"column": "pairs_drawn"}, {"run": "hard"}])
def test_pairs_without_indicators_are_browsed_too(chromium, scored, tmp_path, places):
    with opened(chromium, scored, tmp_path, places) as watched:
        page = watched.page
        settle(page)
        assert page.locator("#thresholds").is_hidden() and page.locator(".tile").count() > 0
        page.locator(".tile").first.click()
        assert "No Semantic Consistency, Alignment Level, similarity" in page.inner_text("#absent")
        assert page.locator("#pair-body table").count() == 0
        if "run" in places:
            page.select_option("#y", "loss")
            assert "Trained on" in page.inner_text("#pair-body")
            losses, chosen = numbers(page, "viewkit.axes.loss.values"), numbers(page, "viewkit.selected").astype(bool)
            assert (losses.reshape(-1, PAIRS).argmax(axis=1) == chosen.reshape(-1, PAIRS).argmax(axis=1)).all()


def test_one_of_several_runs_is_selected(chromium, scored, tmp_path, build):
    build.make_run(scored, "second", steps=(5,))
    with opened(chromium, scored, tmp_path, {"run": "hard,second"}) as watched:
        page = watched.page
        page.select_option("#verdict", "")
        page.select_option("#run", "1")
        selected = numbers(page, "viewkit.selected")
        assert selected.tolist() == [0] * (30 * PAIRS) + [1] * (30 * PAIRS)
        settle(page)
        assert page.locator("#command").is_hidden() and page.locator("#copy-command").is_hidden()


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_it_without_scrolling_sideways(chromium, scored, tmp_path, scheme):
    options = {"viewport": PHONE, "color_scheme": scheme, "has_touch": True, "device_scale_factor": 2}
    with opened(chromium, scored, tmp_path, **options) as watched:
        page = watched.page
        settle(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        box = page.locator("#plot").bounding_box()
        page.touchscreen.tap(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
        page.emulate_media(color_scheme="light" if scheme == "dark" else "dark")
        settle(page)


def test_everything_has_a_name_and_is_reached_by_the_tab_key(chromium, scored, tmp_path):
    with opened(chromium, scored, tmp_path) as watched:
        page = watched.page
        settle(page)
        for role in ("combobox", "spinbutton", "slider", "button", "searchbox", "img"):
            for each in page.get_by_role(role).all():
                name = re.search(rf"- {role}(?: \"([^\"]+)\")?", each.aria_snapshot())
                assert name and name[1], f"a {role} has no name: {each.evaluate('e => e.outerHTML')[:200]}"
        reached = set()
        for _ in range(80):
            page.keyboard.press("Tab")
            reached.add(page.evaluate("document.activeElement.id"))
        controls = {
            "x",
            "y",
            "share",
            "ksc",
            "kal",
            "gamma",
            "verdict",
            "class",
            "key",
            "reset",
            "plot",
            "next",
            "order",
        }
        assert controls | {"copy-command", "copy-keys", "download-keys"} <= reached


def test_the_picture_of_the_docs_is_made_by_its_program(chromium, scored, tmp_path):
    program = Path(__file__).parents[3] / "docs" / "screenshots.py"
    run_stage(BrowseStage(), BrowseConfig(points=60, pairs=30), scored, CPU)
    subprocess.run([sys.executable, str(program), str(scored.path), str(tmp_path)], check=True)
    for folder in (tmp_path, program.parent / "pictures"):
        assert (folder / "browse.png").read_bytes()[:4] == b"\x89PNG" and (folder / "browse.png").stat().st_size < 2e5
    missing = subprocess.run([sys.executable, str(program), str(tmp_path)], capture_output=True, text=True, check=False)
    assert missing.returncode == 1 and "make it with 'viewkit browse" in missing.stderr
