"""Do VS-2FI's indicators find bad pairs? The whole chain on images of your own, trained and untrained, as Markdown.

    python benchmarks/vs2fi.py SOURCE FOLDER --estimator preset=pico-32 epochs=100 --audit images=500

SOURCE is anything that `viewkit pack` takes; masks or boxes in KEY.json and KEY.mask.png give ROC areas, labels give
kNN accuracies. FOLDER keeps both datasets, so the program can be stopped and repeated. Nothing is timed.
"""

import argparse
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from viewkit.pipelines.audit.config import AuditConfig
from viewkit.pipelines.audit.stage import RESULT, AuditStage
from viewkit.pipelines.audit.tables import Table, audit_tables, markdown, number, signed
from viewkit.pipelines.encoders.labelled_features import labelled_features
from viewkit.pipelines.encoders.open import open_encoder
from viewkit.pipelines.engine.config import make_config
from viewkit.pipelines.engine.execution import Execution
from viewkit.pipelines.engine.run import run_stage
from viewkit.pipelines.estimator.config import EstimatorConfig
from viewkit.pipelines.estimator.stage import EstimatorStage
from viewkit.pipelines.histograms.config import HistogramsConfig
from viewkit.pipelines.histograms.stage import HistogramsStage
from viewkit.pipelines.labels import labelled_rows, labels_of
from viewkit.pipelines.models.checkpoint import save_tensors
from viewkit.pipelines.models.estimator import FACTS, WEIGHTS, Estimator, EstimatorNetwork
from viewkit.pipelines.pack.config import PackConfig
from viewkit.pipelines.pack.stage import PackStage
from viewkit.pipelines.pairs.samples import SampleReader
from viewkit.pipelines.score.config import ScoreConfig
from viewkit.pipelines.score.stage import ScoreStage
from viewkit.pipelines.training.knn import NEIGHBOURS, knn_predict, top1
from viewkit.shards.artifact import IDENTITY, finish_artifact
from viewkit.shards.codecs import decode_json, encode_json
from viewkit.shards.dataset import Dataset
from viewkit.shards.errors import ViewkitError
from viewkit.shards.files import make_folder, read_file, write_atomic
from viewkit.shards.identity import Identity, write_identity


@dataclass(frozen=True)
class Outcome:
    """One estimator's numbers: audit.json, how well similarity separates the two kinds, and kNN accuracy."""

    name: str
    audit: Mapping[str, Any]
    separation: float
    knn: float | None

    def area(self, question: str, rule: str) -> float | None:
        """ROC area of a rule; None where the data cannot answer the question."""
        for answer in self.audit["ground_truth"]:
            if answer["name"] == question:
                return next(each["roc_area"] for each in answer["rules"] if each["name"] == rule)
        return None


def pack(options: argparse.Namespace, name: str) -> Dataset:
    dataset = Dataset(Path(options.folder) / name)
    run_stage(PackStage(options.source), make_config(PackConfig, options.pack, "--pack"), dataset, execution(options))
    return dataset


def examine(options: argparse.Namespace, dataset: Dataset, name: str) -> Outcome:
    """Histograms, scores and audit of a dataset that has an estimator."""
    estimator = Estimator.load(dataset.artifact("estimator"), options.device)
    rows = dataset.column("images").num_rows
    negatives = min(int(estimator.facts["batch_size"]), rows) - 1
    histograms = {"negatives": negatives, "images": max(rows, negatives + 1), **options.histograms}
    steps = (
        (HistogramsStage(), make_config(HistogramsConfig, histograms, "--histograms")),
        (ScoreStage(), make_config(ScoreConfig, options.score, "--score")),
        (AuditStage(classifier=options.classifier), make_config(AuditConfig, options.audit, "--audit")),
    )
    for stage, config in steps:
        run_stage(stage, config, dataset, execution(options))
    found = decode_json(read_file(dataset.artifact("audit").path(RESULT)))
    separation = float(dataset.artifact("histograms").numbers["separation"])
    return Outcome(name, found, separation, knn_accuracy(dataset, options.device))


def train(options: argparse.Namespace, dataset: Dataset) -> None:
    run_stage(
        EstimatorStage(), make_config(EstimatorConfig, options.estimator, "--estimator"), dataset, execution(options)
    )


def put_untrained(trained: Dataset, dataset: Dataset) -> None:
    """The trained estimator's network with the weights it began with, as the artifact of another dataset."""
    folder = dataset.path / "estimator"
    if dataset.is_artifact("estimator") and dataset.artifact("estimator").is_complete:
        return
    facts = decode_json(read_file(trained.artifact("estimator").path(FACTS)))
    make_folder(folder)
    identity = Identity("estimator", 0, {"untrained": facts}, {"images": dataset.column("images").digest}, {})
    write_identity(folder / IDENTITY, identity)
    network = EstimatorNetwork(
        facts["arch"],
        facts["side_px"],
        init=facts["init"],
        num_heads=facts["num_heads"],
        hidden=facts["hidden"],
        dim=facts["dim"],
        seed=facts["seed"],
    )
    save_tensors(folder / WEIGHTS, network.state_dict())
    write_atomic(folder / FACTS, encode_json(facts))
    finish_artifact(folder, identity.digest, {}, ())


def knn_accuracy(dataset: Dataset, device: str) -> float | None:
    """Leave-one-out kNN accuracy of the backbone's features on the dataset's labels; None without labels."""
    encoder = open_encoder("estimator", dataset, device=device)
    images, attached = dataset.column("images"), labels_of(dataset)
    keys = [images.index.keys[place] for place in np.flatnonzero(labelled_rows(images, attached)).tolist()]
    if len(keys) < 2:
        return None
    features, labels = labelled_features(encoder, images, keys, SampleReader(), attached)
    return top1(knn_predict(features, labels, features, k=NEIGHBOURS, leave_one_out=True), labels)


def execution(options: argparse.Namespace) -> Execution:
    return Execution(device=options.device, workers=options.workers)


def summary(outcomes: Sequence[Outcome]) -> Table:
    """Both estimators beside each other."""

    def line(name: str, values: Sequence[str]) -> tuple[str, ...]:
        return (name, *values)

    def shares(key: str) -> list[str]:
        return [f"{100 * each.audit['filtered']['all'][key]:.1f} %" for each in outcomes]

    def sign(distance: str, indicator: str) -> list[str]:
        return [signed(each.audit["correlation"][distance][indicator]) for each in outcomes]

    high = outcomes[0].audit["high_level"]["chosen"]
    rows = [
        line(f"kNN {NEIGHBOURS}, leave-one-out", [number(each.knn) for each in outcomes]),
        line("separation of positives and negatives", [number(each.separation) for each in outcomes]),
        line("pairs with SC below k_SC", shares("below_k_sc")),
        line("pairs with AL below k_AL", shares("below_k_al")),
        line("pairs surviving", shares("surviving")),
        line("rows whose filters relax", shares("relaxed")),
        line("AL against colour distance", sign("colour", "level")),
        line(f"SC against {high} distance", sign(high, "consistency")),
    ]
    for answer in outcomes[0].audit["ground_truth"]:
        for rule in answer["rules"]:
            name = f"ROC area, {answer['name'].replace('_', ' ')}: {rule['name'].replace('_', ' ')}"
            rows.append(line(name, [number(each.area(answer["name"], rule["name"])) for each in outcomes]))
    note = f"High-level distance: {outcomes[0].audit['high_level']['about']}."
    return Table("VS-2FI's indicators", note, ("", *(each.name for each in outcomes)), tuple(rows))


def misses(outcomes: Sequence[Outcome]) -> list[str]:
    """What is not as the paper says it should be."""
    trained = outcomes[0]
    high = trained.audit["high_level"]["chosen"]
    level = trained.audit["correlation"]["colour"]["level"]
    consistency = trained.audit["correlation"][high]["consistency"]
    found = []
    if len(outcomes) > 1 and trained.knn is not None and trained.knn <= (outcomes[1].knn or 0):
        found.append("kNN of the trained estimator is not above the untrained one's")
    if level is None or level <= 0:
        found.append("Alignment Level does not rise with the low-level distance")
    if consistency is None or consistency >= 0:
        found.append("Semantic Consistency does not fall with the high-level distance")
    for answer in trained.audit["ground_truth"]:
        indicator = answer["rules"][0]
        if indicator["roc_area"] is not None and indicator["roc_area"] <= 0.5:
            found.append(f"{indicator['name']} does not tell which pairs have: {answer['name']}")
    return found


def settings(given: Sequence[str]) -> dict[str, Any]:
    """``name=value`` to options; values as JSON where they are, else as text."""
    found: dict[str, Any] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals:
            raise argparse.ArgumentTypeError(f"{each!r} is no NAME=VALUE")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    title, _, more = (__doc__ or "").partition("\n")
    parser = argparse.ArgumentParser(
        description=title, epilog=more, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("source", help="folder of images, WebDataset tar, folder of tars, or demo:train")
    parser.add_argument("folder", help="where the datasets go: FOLDER/trained and FOLDER/untrained")
    for stage in ("pack", "estimator", "histograms", "score", "audit"):
        parser.add_argument(f"--{stage}", nargs="*", default=[], metavar="NAME=VALUE", help=f"options of {stage}")
    parser.add_argument("--classifier", type=Path, help="folder or file of a timm classifier, see docs/audit.md")
    parser.add_argument("--no-control", action="store_true", help="leave the untrained estimator out")
    parser.add_argument("--device", default="cpu", help="where models run (default cpu)")
    parser.add_argument("--workers", type=int, default=1, help="processes of pack and score (default 1)")
    parser.add_argument("--json", action="store_true", help="print the numbers as JSON")
    parser.add_argument("--check", action="store_true", help="exit 1 when a sign is not the paper's")
    options = parser.parse_args(arguments)
    try:
        for stage in ("pack", "estimator", "histograms", "score", "audit"):
            setattr(options, stage, settings(getattr(options, stage)))
    except argparse.ArgumentTypeError as error:
        parser.error(str(error))
    return options


def main(arguments: Sequence[str]) -> int:
    options = parse(arguments)
    try:
        trained = pack(options, "trained")
        train(options, trained)
        outcomes = [examine(options, trained, "trained")]
        if not options.no_control:
            untrained = pack(options, "untrained")
            put_untrained(trained, untrained)
            outcomes.append(examine(options, untrained, "untrained"))
    except ViewkitError as error:
        print(error, file=sys.stderr)
        return error.exit_code
    missed = misses(outcomes)
    if options.json:
        rows = {each.name: {"knn": each.knn, "separation": each.separation, "audit": each.audit} for each in outcomes}
        print(json.dumps({"outcomes": rows, "missed": missed}, indent=2))
    else:
        print(markdown([summary(outcomes), *audit_tables(outcomes[0].audit)]))
        for line in missed:
            print(f"\nnot as the paper says: {line}")
    return 1 if options.check and missed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
