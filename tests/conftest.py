"""What all tests share: how property tests draw, and one browser.

Property tests draw the same examples every time, so that a red run is a change's fault and not the dice's;
`HYPOTHESIS_PROFILE=explore` draws afresh, ten times as many.
"""

import os

import pytest
from browser import launched
from filelock import FileLock
from hypothesis import settings

settings.register_profile("stable", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("explore", max_examples=1000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "stable"))


@pytest.fixture(scope="session")
def chromium():
    """One browser for all pages: playwright cannot be started twice in a process."""
    with launched() as browser:
        yield browser


@pytest.fixture(scope="session")
def chain(tmp_path_factory):
    """`tiny_chain.Chain`, made once for all processes of this run. Tests that write into it take a copy."""
    from tiny_chain import Chain

    own = tmp_path_factory.getbasetemp()
    shared = own.parent if "PYTEST_XDIST_WORKER" in os.environ else own
    with FileLock(shared / "chain.lock"):
        return Chain.at(shared / "chain")
