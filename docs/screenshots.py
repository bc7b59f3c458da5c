"""The pictures of the pages in docs/: `python docs/screenshots.py DATASET [FOLDER]`, with playwright and Chromium.

DATASET: one that `viewkit browse` was run on, e.g. the demo's. FOLDER: where the PNGs go, by default docs/pictures.
"""

import io
import shutil
import sys
from pathlib import Path

from PIL import Image
from playwright.sync_api import sync_playwright

SIZE = {"width": 1360, "height": 860}
COLOURS = 192
"""Of the PNGs, so that each stays below 200 kB."""


def main(dataset: Path, folder: Path) -> None:
    chromium = shutil.which("chromium")
    if chromium is None:
        sys.exit("screenshots: there is no chromium on this machine (Debian: apt-get install chromium)")
    folder.mkdir(parents=True, exist_ok=True)
    page_file = (dataset / "browse" / "index.html").resolve()
    if not page_file.is_file():
        sys.exit(f"screenshots: {page_file} is not there; make it with 'viewkit browse {dataset}'")
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=["--no-sandbox", "--disable-gpu"])
        page = browser.new_page(viewport=SIZE)
        page.goto(f"file://{page_file}")
        page.wait_for_timeout(500)
        page.wait_for_function("[...document.images].every((each) => each.complete)")
        with Image.open(io.BytesIO(page.screenshot())) as picture:
            picture.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(
                folder / "browse.png", optimize=True
            )
        browser.close()


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        sys.exit("usage: python docs/screenshots.py DATASET [FOLDER]")
    main(Path(sys.argv[1]), Path(sys.argv[2]) if len(sys.argv) == 3 else Path(__file__).parent / "pictures")
