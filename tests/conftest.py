"""How property tests draw: the same examples every time, so that a red run is a change's fault and not the dice's.

`HYPOTHESIS_PROFILE=explore` draws afresh, ten times as many.
"""

import os

from hypothesis import settings

settings.register_profile("stable", derandomize=True, deadline=None, print_blob=True)
settings.register_profile("explore", max_examples=1000, deadline=None, print_blob=True)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "stable"))
