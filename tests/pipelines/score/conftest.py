import pytest

from viewkit.pipelines.histograms import stage


@pytest.fixture(scope="module", autouse=True)
def no_plots():
    """Histograms are only an input here, and drawing them takes most of the time."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stage, "plot_consistency", lambda histograms, folder: None)
        patch.setattr(stage, "plot_alignment", lambda histograms, folder: None)
        yield
