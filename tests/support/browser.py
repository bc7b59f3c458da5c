"""A real browser for pages that viewkit writes: Debian's Chromium, driven by playwright; no network, no profile."""

import shutil
from contextlib import contextmanager

import pytest

CHROMIUM = shutil.which("chromium")
ARGUMENTS = [
    "--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update", "--disable-sync",
    "--no-first-run",
]  # fmt: skip
LAPTOP, PHONE = {"width": 1440, "height": 900}, {"width": 390, "height": 844}


@contextmanager
def launched():
    """A browser; skips the test where this machine has none."""
    if CHROMIUM is None:
        pytest.skip("there is no chromium on this machine (Debian: apt-get install chromium)")
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(executable_path=CHROMIUM, args=ARGUMENTS)
        yield chromium
        chromium.close()


class Watched:
    """A page with all that went wrong in it: errors and warnings of the console, and requests that left the file."""

    def __init__(self, browser, path, **options):
        self.context = browser.new_context(**{"viewport": LAPTOP, **options})
        self.page = self.context.new_page()
        self.errors, self.requests = [], []
        self.page.on("console", lambda line: self.errors.append(f"{line.type}: {line.text}"))
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("request", self._note)
        self.address = f"file://{path}"
        self.page.goto(self.address.replace("%", "%25").replace("#", "%23"))

    def _note(self, request):
        if not request.url.startswith(("file:", "data:", "blob:")):
            self.requests.append(request.url)

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        self.context.close()
        if kind is None:
            assert (self.errors, self.requests) == ([], [])
