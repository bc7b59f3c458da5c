"""The page in a real browser."""

import pytest
from browser import PHONE, Watched
from small_datasets import CPU

from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.report.config import ReportConfig
from viewkit.pipelines.report.stage import ReportStage

pytestmark = pytest.mark.slow

UNDER = "([x, y]) => document.elementFromPoint(x, y).querySelector('title')?.textContent"


@pytest.fixture(scope="module")
def path(everything):
    run_stage(ReportStage(), ReportConfig(pairs=3, generated=4, view_px=32), everything, CPU)
    return everything.artifact("report").path("index.html")


def test_every_chart_tells_its_numbers_under_the_pointer_and_opens_its_table(chromium, path):
    with Watched(chromium, path) as watched:
        page = watched.page
        charts = page.locator("figure.chart").all()
        assert len(charts) >= 6
        for chart in charts:
            chart.locator("summary").click()
            cells = chart.locator("tbody tr").first.locator("th, td").all_inner_texts()
            assert chart.locator("details").get_attribute("open") is not None and all(cells)
            box = chart.locator("rect.mark").first.bounding_box()
            page.mouse.move(box["x"] + box["width"] / 2, box["y"] + box["height"] / 2)
            told = page.evaluate(UNDER, [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2])
            if told is None:  # scrolled out of sight by the tables that were opened
                chart.locator("svg").scroll_into_view_if_needed()
                box = chart.locator("rect.mark").first.bounding_box()
                told = page.evaluate(UNDER, [box["x"] + box["width"] / 2, box["y"] + box["height"] / 2])
            assert all(cell in told for cell in cells), (told, cells)


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_a_phone_shows_it_without_scrolling_sideways(chromium, path, scheme):
    with Watched(chromium, path, viewport=PHONE, color_scheme=scheme) as watched:
        assert watched.page.evaluate("document.documentElement.scrollWidth") <= PHONE["width"]
        watched.page.locator("#verdict a").first.click()
        assert watched.page.url.endswith("#accuracy")
