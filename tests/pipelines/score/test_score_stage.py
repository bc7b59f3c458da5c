from dataclasses import replace

import numpy as np
import pytest
import torch
import vs2fi as reference
from vs2fi_world import make_estimator, make_genview, make_images

from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.histograms.config import HistogramsConfig
from viewkit.pipelines.histograms.stage import HistogramsStage
from viewkit.pipelines.models.estimator import Estimator
from viewkit.pipelines.pairs.column import CONSISTENCY, LEVEL, SIMILARITIES, score_names
from viewkit.pipelines.pairs.order import pair_index
from viewkit.pipelines.pairs.samples import load_image
from viewkit.pipelines.pairs.select import select_kept, vs2fi_survivors
from viewkit.pipelines.score.config import ScoreConfig
from viewkit.pipelines.score.scorer import RowImages, Scorer
from viewkit.pipelines.score.stage import ScoreStage, check_histograms
from viewkit.pipelines.views.policies import load_policy
from viewkit.pipelines.views.recipe import NUM_FIELDS, check_recipes, column
from viewkit.pipelines.views.render.render import render
from viewkit.pipelines.vs2fi.artifact import Histograms
from viewkit.pipelines.vs2fi.embeddings import ROWS_PER_BATCH
from viewkit.pipelines.vs2fi.scores import rescore
from viewkit.shards.codecs import decode_npy
from viewkit.shards.errors import ConfigError, DataError, RefusedError
from viewkit.shards.row import Reject, Row

CONFIG = ScoreConfig(rounds=2)
ON_CPU = Execution(device="cpu", workers=1)


def build(path, count=40, precision="fp32", **options):
    dataset = make_images(path, count=count, **options)
    make_estimator(dataset)
    config = HistogramsConfig(negatives=9, images=count, precision=precision)
    run_stage(HistogramsStage(), config, dataset, ON_CPU)
    return dataset


@pytest.fixture(scope="module")
def dataset(tmp_path_factory):
    dataset = build(tmp_path_factory.mktemp("score") / "d")
    run_stage(ScoreStage(), CONFIG, dataset, ON_CPU)
    return dataset


def arrays(dataset, key, name="pairs"):
    column_ = dataset.column(name)
    fields = column_.fields(column_.place_of[key])
    return decode_npy(fields["recipes.npy"]), decode_npy(fields["scores.npy"])


def scorer_of(dataset, config=CONFIG):
    estimator = Estimator.load(dataset.artifact("estimator"))
    histograms = Histograms.load(dataset.artifact("histograms"))
    return Scorer(estimator, histograms, load_policy(config.policy).with_side(32), config, "score")


def decoded(dataset, keys):
    images = dataset.column("images")
    return [RowImages(key, load_image(images.fields(images.place_of[key]), "cpu")) for key in keys]


def test_every_row_has_recipes_and_scores_of_the_stated_shapes(dataset):
    images = dataset.column("images")
    assert list(dataset.column("pairs").keys()) == list(images.keys())
    for key in images.keys():  # noqa: SIM118
        recipes, scores = arrays(dataset, key)
        assert recipes.shape == (2, 5, NUM_FIELDS) and recipes.dtype == np.float32
        assert scores.shape == (2, 10, len(score_names(6))) and scores.dtype == np.float32
        check_recipes(recipes)
        assert np.all((scores[..., CONSISTENCY] >= 0) & (scores[..., CONSISTENCY] <= 1))
        assert np.isin(scores[..., LEVEL], np.arange(1, 8)).all()
        assert np.abs(scores[..., SIMILARITIES:]).max() <= 1 + 1e-6


def test_scores_equal_the_papers_loops_over_views_rendered_one_by_one(dataset):
    """Eq. 2, 5 and 6 by the slow reference implementations, from the stored recipes alone."""
    scorer = scorer_of(dataset)
    h, estimator = scorer.histograms, scorer.estimator
    curve = reference.posterior(h.positive.tolist(), h.negative.tolist(), h.prior_positive)
    for key in list(dataset.column("images").keys())[:3]:
        recipes, scores = arrays(dataset, key)
        image = decoded(dataset, [key])[0].original
        for round in range(2):
            views = render(
                [image], recipes[round], np.zeros(5, dtype=np.int64), side_px=32, mean=estimator.mean, std=estimator.std
            )
            embedded = [estimator.embed(view[None]) for view in views]
            for c, (i, j) in enumerate(reference.pairs(5)):
                s = reference.cosine(embedded[i].top[0].tolist(), embedded[j].top[0].tolist())
                assert abs(scores[round, c, 2] - s) < 1e-5
                found = scores[round, c].tolist()
                edges = h.similarity_edges.tolist()
                assert abs(found[0] - reference.semantic_consistency(found[2], edges, curve)) < 1e-6
                p = []
                for level in range(6):
                    s = reference.cosine(embedded[i].exits[0, level].tolist(), embedded[j].exits[0, level].tolist())
                    assert abs(found[3 + level] - s) < 1e-5
                    spec = h.log_sum[level].tolist(), h.log_sum_edges[level].tolist()
                    p.append(reference.alignment_score(found[3 + level], *spec, h.tau))
                assert found[1] == reference.alignment_level(p, CONFIG.gamma)


def test_rescoring_the_stored_similarities_gives_the_stored_indicators_to_the_bit(dataset):
    histograms = Histograms.load(dataset.artifact("histograms"))
    scores = np.stack([arrays(dataset, key)[1] for key in dataset.column("images").keys()])  # noqa: SIM118
    consistency, level = rescore(scores[..., SIMILARITIES:], histograms, CONFIG.gamma)
    np.testing.assert_array_equal(consistency, scores[..., CONSISTENCY])
    np.testing.assert_array_equal(level, scores[..., LEVEL])


def test_a_row_does_not_depend_on_its_neighbours(dataset):
    scorer = scorer_of(dataset)
    keys = list(dataset.column("images").keys())
    alone = scorer.score(decoded(dataset, keys[5:6]))
    beside = scorer.score(decoded(dataset, [*keys[20:22], keys[5], *keys[30:33]]))
    for one, many in zip(alone, beside, strict=True):
        np.testing.assert_array_equal(one[0], many[2])


def test_every_forward_pass_has_the_same_number_of_views(dataset, monkeypatch):
    """A kernel may sum in another order for another batch size; 40 rows are 16, 16 and 8 in three shards."""
    seen, embed = [], Estimator.embed
    monkeypatch.setattr(Estimator, "embed", lambda self, views: seen.append(len(views)) or embed(self, views))
    scorer_of(dataset).score(decoded(dataset, ["row0000"]))
    scorer_of(dataset).score(decoded(dataset, list(dataset.column("images").keys())[:ROWS_PER_BATCH]))
    assert seen == [ROWS_PER_BATCH * 5] * 4


@pytest.mark.parametrize("workers", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_another_sharding_and_two_workers_write_the_same_rows(dataset, tmp_path, workers):
    other = build(tmp_path / "resharded", shard_rows=9)
    run_stage(ScoreStage(), CONFIG, other, Execution(device="cpu", workers=workers))
    for key in dataset.column("images").keys():  # noqa: SIM118
        for ours, theirs in zip(arrays(dataset, key), arrays(other, key), strict=True):
            np.testing.assert_array_equal(ours, theirs)


def test_stored_scores_choose_the_pairs_that_an_online_estimator_would_choose(dataset):
    """Alg. 1 online: draw M views, embed them now, filter, choose; against the column written beforehand, by round."""
    keys = list(dataset.column("images").keys())[3:19]
    online = scorer_of(dataset)
    u = np.random.default_rng(0).random(len(keys))
    for round in range(2):
        chosen = []
        for batch in (keys[:1], keys[1:]):  # an online batch is never the one that the column was scored in
            recipes, similarities = online.score_round(decoded(dataset, batch), round)
            consistency, level = rescore(similarities, online.histograms, CONFIG.gamma)
            for row, key in enumerate(batch):
                np.testing.assert_array_equal(recipes[row], arrays(dataset, key)[0][round])
            chosen += zip(consistency, level, strict=True)
        live = np.stack([each[0] for each in chosen]), np.stack([each[1] for each in chosen])
        stored = np.stack([arrays(dataset, key)[1][round] for key in keys])
        offline = stored[..., CONSISTENCY], stored[..., LEVEL]
        ours, theirs = (pair_index(5)[select_kept(vs2fi_survivors(*each, 0.99, 7), u)] for each in (offline, live))
        np.testing.assert_array_equal(ours, theirs)
        for row, pair in enumerate(theirs):
            kept = reference.keep(*(part.tolist() for part in chosen[row]), 0.99, 7)
            assert tuple(sorted(pair.tolist())) in [reference.pairs(5)[c] for c in kept]


def run_with(dataset, config, monkeypatch=None):
    """Outcomes of the stage over the first shard."""
    from viewkit.pipelines.engine.contract import Run

    stage = ScoreStage()
    score = stage.prepare(config, Run(dataset, dataset.path / "elsewhere", stage.name))
    return list(score(stage.sources(config, dataset).rows(0)))


@pytest.fixture(scope="module")
def generated(tmp_path_factory):
    dataset = build(tmp_path_factory.mktemp("generated") / "d")
    make_genview(dataset, missing=("row0002",))
    return dataset


def test_original_candidates_have_source_0(dataset):
    recipes, _ = arrays(dataset, "row0000")
    assert np.all(recipes[..., column("source")] == 0)


def test_generated_candidates_are_cut_from_the_generated_image_alone(generated):
    outcomes = run_with(generated, ScoreConfig(rounds=1, candidates="generated"))
    assert [type(outcome) for outcome in outcomes[:4]] == [Row, Row, Reject, Row]
    assert outcomes[2].reason == "no_generated_view"
    recipes = decode_npy(outcomes[0].fields["recipes.npy"])
    assert np.all(recipes[..., column("source")] == 1)
    images, genview = generated.column("images"), generated.column("genview")
    swapped = RowImages("row0000", load_image(genview.fields(genview.place_of["row0000"]), "cpu"))
    _, scores = scorer_of(generated, ScoreConfig(rounds=1)).score([swapped])
    np.testing.assert_array_equal(decode_npy(outcomes[0].fields["scores.npy"]), scores[0])
    assert images.num_rows == 40


def test_mixed_candidates_alternate_and_fall_back_to_the_original_where_the_recipe_says_so(generated):
    outcomes = run_with(generated, ScoreConfig(rounds=2, candidates="mixed"))
    assert all(isinstance(outcome, Row) for outcome in outcomes)
    sources = [decode_npy(outcome.fields["recipes.npy"])[..., column("source")] for outcome in outcomes]
    assert sources[0].tolist() == [[0, 1, 0, 1, 0]] * 2
    assert sources[2].tolist() == [[0] * 5] * 2
    plain = run_with(generated, ScoreConfig(rounds=2))
    assert outcomes[2].fields == plain[2].fields
    assert outcomes[0].fields != plain[0].fields


def test_nan_similarities_and_undecodable_images_are_rejects_and_leave_the_others_untouched(dataset, monkeypatch):
    good = run_with(dataset, CONFIG)
    embed = Estimator.embed

    def broken(self, views):
        top, exits = embed(self, views)
        top = top.clone()
        top[7] = torch.nan  # view 2 of row 1 in each round
        return type(embed(self, views[:1]))(top, exits)

    monkeypatch.setattr(Estimator, "embed", broken)
    outcomes = run_with(dataset, CONFIG)
    assert isinstance(outcomes[1], Reject) and outcomes[1].reason == "non_finite"
    assert [outcome.key for outcome in outcomes] == [row.key for row in good]
    assert outcomes[2] == good[2]
    monkeypatch.undo()
    stage = ScoreStage()
    rows = list(stage.sources(CONFIG, dataset).rows(0))
    rows[3] = Row(rows[3].key, {"png": rows[3].fields["png"][:-40]})
    from viewkit.pipelines.engine.contract import Run

    found = list(stage.prepare(CONFIG, Run(dataset, dataset.path / "elsewhere", "score"))(iter(rows)))
    assert isinstance(found[3], Reject) and found[3].reason == "undecodable"
    assert found[:3] + found[4:] == good[:3] + good[4:]


def test_histograms_of_another_estimator_are_refused_by_name(tmp_path):
    dataset = build(tmp_path / "d")
    make_estimator(dataset, seed=1)
    with pytest.raises(RefusedError, match=r"counted with differ in digest \(\w{12} against \w{12}\); .*histograms"):
        run_with(dataset, CONFIG)
    make_estimator(dataset, tau=0.1)
    with pytest.raises(RefusedError, match=r"digest .*, tau \(0.1 against 0.2\)"):
        run_with(dataset, CONFIG)


def test_histograms_of_another_policy_are_refused_by_name(dataset):
    with pytest.raises(
        RefusedError, match="policy is 'moco_v3', and the histograms' views were sampled by 'strengthened'"
    ):
        ScoreStage().inputs(ScoreConfig(policy="moco_v3"), dataset)


def test_another_side_than_the_estimators_is_refused(dataset):
    with pytest.raises(RefusedError, match=r"side_px \(32 against 96\)"):
        run_with(dataset, ScoreConfig(side_px=96))


def test_the_estimator_is_given_views_in_its_own_normalisation_whatever_the_policys(dataset):
    """genview_vit is moco_v3_vit with CLIP's mean and std: the same views, and so the same scores."""
    clip, imagenet = (
        run_with(dataset, ScoreConfig(rounds=1, policy=policy)) for policy in ("genview_vit", "moco_v3_vit")
    )
    assert [row.fields for row in clip] == [row.fields for row in imagenet]


def test_histograms_of_another_precision_or_number_of_exits_are_refused_by_name(dataset):
    with pytest.raises(RefusedError, match=r"differ in precision \(bf16 against fp32\); .* --precision"):
        run_with(dataset, ScoreConfig(precision="bf16"))
    artifact, scorer = dataset.artifact("estimator"), scorer_of(dataset)
    fewer = replace(scorer.histograms, soft_mean_cells=scorer.histograms.soft_mean_cells[:5])
    with pytest.raises(RefusedError, match=r"differ in num_exits \(6 against 5\)"):
        check_histograms("score", scorer.estimator, artifact.digest, fewer)


def test_histograms_whose_counts_do_not_match_their_N_are_an_error(dataset):
    artifact, scorer = dataset.artifact("estimator"), scorer_of(dataset)
    other = replace(scorer.histograms, negatives=19)
    with pytest.raises(DataError, match=r"negatives 19: negative \(360 against 760\); delete the folder"):
        check_histograms("score", scorer.estimator, artifact.digest, other)
    cut = scorer.histograms.soft_mean_cells.copy()
    cut[2] = 0
    with pytest.raises(DataError, match=r"exit 3 \(0 against 80\)"):
        check_histograms("score", scorer.estimator, artifact.digest, replace(scorer.histograms, soft_mean_cells=cut))


def test_bf16_similarities_are_stored_in_fp32_and_near_those_of_fp32(dataset, tmp_path):
    other = build(tmp_path / "d", count=20, precision="bf16")
    run_stage(ScoreStage(), ScoreConfig(rounds=2, precision="bf16"), other, ON_CPU)
    for key in other.column("images").keys():  # noqa: SIM118
        (recipes, near), (same, exact) = arrays(other, key), arrays(dataset, key)
        np.testing.assert_array_equal(recipes, same)
        assert near.dtype == np.float32
        assert 0 < np.abs(near - exact)[..., SIMILARITIES:].max() < 0.05
    online = Scorer(
        Estimator.load(other.artifact("estimator"), precision="bf16"),
        Histograms.load(other.artifact("histograms")),
        load_policy("strengthened").with_side(32),
        CONFIG,
        "score",
    )
    _, scores = online.score(decoded(other, ["row0007"]))  # alone, where the stage had neighbours
    np.testing.assert_array_equal(scores[0], arrays(other, "row0007")[1])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounds": 0}, "rounds is 0"),
        ({"num_views": 1}, "num_views is 1"),
        ({"gamma": 1.0}, "gamma is 1.0"),
        ({"gamma": float("nan")}, "gamma is nan"),
        ({"side_px": -1}, "side_px is -1"),
        ({"seed": -1}, "seed is -1"),
    ],
)
def test_impossible_options_are_named(options, message):
    with pytest.raises(ConfigError, match=message):
        ScoreConfig(**options)


def test_score_names_are_one_a_column():
    assert score_names(2) == (
        "semantic_consistency", "alignment_level", "similarity_top", "similarity_exit_1", "similarity_exit_2",
    )  # fmt: skip
