"""What `benchmarks/evidence.py` keeps of a finished study, where objects are known and where not."""

import sys
from pathlib import Path

import pytest

FOLDER = Path(__file__).parents[1] / "benchmarks"


@pytest.fixture
def evidence(monkeypatch):
    monkeypatch.syspath_prepend(str(FOLDER))
    import evidence

    yield evidence
    for name in ("evidence", "studies", "evidence_page", "evidence_picture"):
        sys.modules.pop(name, None)


def test_photographs_without_objects_have_no_false_positives_to_count(evidence):
    assert evidence.audited({"ground_truth": [{"name": "same_class", "rules": []}], "selections": []}) is None


def test_false_positives_and_areas_are_kept_where_objects_are_known(evidence):
    areas = dict.fromkeys(evidence.AREAS, 0.7) | {name.replace("area", "error"): 0.1 for name in evidence.AREAS}
    question = {"name": evidence.FALSE, "rules": [{"name": "sc", **areas}]}
    selection = {"name": "overlap", "bad": {evidence.FALSE: {"share": 0.3, "error": 0.01, "count": 3}}}
    found = evidence.audited({"ground_truth": [question], "selections": [selection]})
    assert found["false"] == {"overlap": {"share": 0.3, "error": 0.01}}
    assert found["rules"] == {"sc": {name: [0.7, 0.1] for name in evidence.AREAS}}


def test_a_study_that_is_there_keeps_the_commit_that_measured_it(evidence, tmp_path):
    study = next(each for each in evidence.STUDIES if each.name == "evidence-precision")
    own = tmp_path / study.dataset / "compare" / study.comparison
    own.mkdir(parents=True)
    (own / "compare.json").write_text('{"curves": {}, "arms": [1]}')
    (own / "costs.json").write_text("{}")
    path = evidence.keep(study, tmp_path, tmp_path / "docs", "abc1234")
    first = path.read_bytes()
    assert evidence.keep(study, tmp_path, tmp_path / "docs", "def5678").read_bytes() == first
    (own / "compare.json").write_text('{"curves": {}, "arms": [2]}')
    assert b"def5678" in evidence.keep(study, tmp_path, tmp_path / "docs", "def5678").read_bytes() != first


def test_a_study_s_lines_say_what_its_arms_are_and_how_they_differ(evidence):
    import evidence_page

    kept = evidence_page.read(evidence.DOCS / evidence.KEPT)["evidence-precision"]
    lines = evidence_page.study_lines(kept, ["`fp32`: what it is."])
    assert "- `fp32`: what it is." in lines and "- Arm 'stored' also differs from 'fp32' in precision." in lines


def test_a_command_names_images_of_ones_own_as_the_makefile_does(evidence):
    studies = {study.name: study for study in evidence.STUDIES}
    assert evidence.shown_sources(studies["evidence-cifar10"]) == ("CIFAR10", "CIFAR10_TEST")
    assert evidence.shown_sources(studies["evidence-rounds"]) == ("demo:train", "demo:test")
