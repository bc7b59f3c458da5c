"""The table of all commands: what each reads from the command line and which stages it runs."""

from pathlib import Path

from viewkit.cli.command import DATASET, Closing, StageCommand, Step
from viewkit.cli.options import Argument

WEIGHTS = Argument(
    "weights",
    "folder of the generator's weights, or org/name@COMMIT; see docs/generators.md",
    Path,
    option=True,
    in_store=True,
)
ENCODER_FOLDER = Argument(
    "weights",
    "folder of a generator's weights, for --encoder unclip, kandinsky or ip-adapter; or org/name@COMMIT",
    Path,
    option=True,
    in_store=True,
)
ENCODER_WEIGHTS = Argument(
    "encoder_weights",
    "safetensors file with the weights of a timm: or open_clip: encoder, instead of the published ones",
    Path,
    option=True,
)
PAIRS_COLUMN = Argument("column", "column of pairs to write", option=True, default="pairs")
RATED_PAIRS = Argument("pairs", "column of pairs whose views are meant", option=True, default="pairs")
GENVIEW_COLUMN = Argument("genview", "column of generated views to crop from", option=True, default="genview")

PIPELINE = (
    StageCommand(
        "pack",
        "Pack images into a dataset: a folder, tars, zip or parquet files, torchvision's folders, or demo:train.",
        "pack.config:PackConfig",
        (Step("pack.stage:PackStage", ("source",)),),
        (
            Argument(
                "source",
                "folder of images; tar, zip or parquet file, or a folder of them; torchvision:NAME:SPLIT:ROOT, "
                "demo:train, demo:test, or mosaic:SOURCE; folders, tars, zip and parquet files also in a store",
                in_store=True,
            ),
            DATASET,
        ),
        maps_rows=True,
        following="estimator {dataset}",
        examples=(
            "viewkit pack my_images dataset --labels folders",
            "viewkit pack torchvision:stl10:train+unlabeled:data dataset",
            "viewkit pack my_images dataset --add",
            "viewkit pack mosaic:demo:train mosaics --grid 2x2 --mosaics 1920",
        ),
    ),
    StageCommand(
        "label",
        "Attach labels to images that were packed without; keys, and what was made from them, stay valid.",
        "pack.label_config:LabelConfig",
        (Step("pack.label_stage:LabelStage", ("from_",)),),
        (
            DATASET,
            Argument("from_", "folder with a folder for every class, or CSV file of lines IMAGE,CLASS", option=True),
        ),
        following="evaluate {dataset}/runs/NAME TEST",
        examples=("viewkit label dataset --from labels.csv", "viewkit label dataset --from sorted_images"),
    ),
    StageCommand(
        "estimator",
        "Train the estimator: MoCo v3 with one linear exit per block.",
        "estimator.config:EstimatorConfig",
        (Step("estimator.stage:EstimatorStage", ("trunk_weights", "from_dataset")),),
        (
            DATASET,
            Argument("trunk_weights", "safetensors file with the weights of --trunk timm:NAME", Path, option=True),
            Argument(
                "from_dataset",
                "a dataset whose estimator is taken as it is; nothing is trained",
                Path,
                option=True,
                in_store=True,
            ),
        ),
        following="generate {dataset}",
        examples=("viewkit estimator dataset --preset pico-32 --epochs 100",),
    ),
    StageCommand(
        "generator",
        "Train a generator of views on the images, without labels or downloads, and measure it at every level.",
        "generate.own.config:GeneratorConfig",
        (Step("generate.own.stage:GeneratorStage", ("autoencoder",)),),
        (
            DATASET,
            Argument(
                "autoencoder",
                "folder of a trained AutoencoderKL, or org/name@COMMIT, for presets of 128 px and more; without it one "
                "is trained on the images",
                Path,
                option=True,
                in_store=True,
            ),
        ),
        closing=Closing("generate.own.stage:summary_lines"),
        following="generate {dataset} --generator own",
        examples=("viewkit generator dataset", "viewkit generator dataset --preset small-128 --precision bf16"),
    ),
    StageCommand(
        "foreground",
        "Fit the component of an encoder's patch tokens that tells foreground; generate and quality do so, too.",
        "foreground.config:ForegroundConfig",
        (Step("foreground.stage:ForegroundStage", ("weights", "encoder_weights", "of", "pairs")),),
        (
            DATASET,
            ENCODER_FOLDER,
            ENCODER_WEIGHTS,
            Argument(
                "of",
                "images: whole ones, for generate; views: stored ones, for quality and pretrain",
                option=True,
                default="images",
            ),
            RATED_PAIRS,
        ),
        in_parts=True,
        following="generate {dataset}",
        examples=("viewkit foreground dataset", "viewkit foreground dataset --of views --sign +"),
    ),
    StageCommand(
        "generate",
        "Generate views of every image, at a noise level its foreground allows.",
        "generate.config:GenerateConfig",
        (
            Step("foreground.stage:ForegroundStage", ("weights", "encoder_weights"), "foreground"),
            Step(
                "generate.stage:GenerateStage",
                ("weights", "batch_size", "levels", "encoder_weights", "compile", "column", "only"),
            ),
        ),
        (
            DATASET,
            WEIGHTS,
            ENCODER_WEIGHTS,
            Argument("levels", "CSV file of noise levels, for --strategy table", Path, option=True),
            Argument("column", "column to write: genview, or genview_NAME", option=True, default="genview"),
            Argument("only", "text file of keys, one a line: views of these images alone", Path, option=True),
            Argument("batch_size", "views in a forward pass (16 unless given)", int, option=True),
            Argument("compile", "compile the generator's networks", bool, option=True),
        ),
        maps_rows=True,
        following="histograms {dataset}",
        examples=(
            "viewkit generate dataset --sign +",
            "viewkit generate dataset --generator unclip --weights stable-unclip --device cuda",
        ),
    ),
    StageCommand(
        "fidelity",
        "Measure how near generated views are to their images.",
        "generate.fidelity_config:FidelityConfig",
        (Step("generate.fidelity_stage:FidelityStage", ("weights", "encoder_weights", "column")),),
        (
            DATASET,
            ENCODER_FOLDER,
            ENCODER_WEIGHTS,
            Argument("column", "column of generated views", option=True, default="genview"),
        ),
        closing=Closing("generate.fidelity_stage:summary_lines"),
        following="report {dataset}",
        examples=("viewkit fidelity dataset --sample 2000",),
    ),
    StageCommand(
        "histograms",
        "Fit the histograms that turn similarities into indicators.",
        "histograms.config:HistogramsConfig",
        (Step("histograms.stage:HistogramsStage"),),
        in_parts=True,
        following="score {dataset}",
        examples=("viewkit histograms dataset",),
    ),
    StageCommand(
        "score",
        "Score candidate pairs of views of every image.",
        "score.config:ScoreConfig",
        (Step("score.stage:ScoreStage", ("column", "genview")),),
        (DATASET, PAIRS_COLUMN, GENVIEW_COLUMN),
        maps_rows=True,
        also=(("quality", "quality"),),
        closing=Closing("pairs.filter:summary_lines", ("column",)),
        following="pretrain {dataset} --name vs2fi --select vs2fi --policy {policy}",
        examples=("viewkit score dataset --rounds 8 --workers 4",),
    ),
    StageCommand(
        "draw",
        "Draw plain pairs of views of every image, without an estimator, to be rated and trained on (GenView).",
        "draw.config:DrawConfig",
        (Step("draw.stage:DrawStage", ("column", "genview")),),
        (DATASET, PAIRS_COLUMN, GENVIEW_COLUMN),
        maps_rows=True,
        following="quality {dataset}",
        examples=("viewkit draw dataset --rounds 100 --policy genview_resnet",),
    ),
    StageCommand(
        "quality",
        "Rate every stored pair: foregrounds alike, backgrounds unlike (GenView).",
        "quality.config:QualityConfig",
        (
            Step("foreground.stage:ViewsForegroundStage", ("weights", "encoder_weights", "pairs"), "foreground"),
            Step("quality.stage:QualityStage", ("weights", "encoder_weights", "pairs", "column")),
        ),
        (
            DATASET,
            RATED_PAIRS,
            Argument("column", "column to write: quality, or quality_NAME", option=True, default="quality"),
            ENCODER_FOLDER,
            ENCODER_WEIGHTS,
        ),
        maps_rows=True,
        following="pretrain {dataset} --name quality --weights quality",
        examples=("viewkit quality dataset --sign +",),
    ),
    StageCommand(
        "rescore",
        "Read the indicators off stored similarities again, for another gamma or other histograms.",
        "score.config:RescoreConfig",
        (Step("score.rescore:RescoreStage", ("pairs", "column")),),
        (
            DATASET,
            Argument("pairs", "column of scored pairs to read", option=True, default="pairs"),
            Argument("column", "column to write", option=True, default="pairs_rescored"),
        ),
        maps_rows=True,
        following="audit {dataset} --column {column}",
        examples=("viewkit rescore dataset --gamma 0.05 --column pairs_strict",),
    ),
    StageCommand(
        "audit",
        "Measure what the indicators filter away, and whether it is what they should.",
        "audit.config:AuditConfig",
        (Step("audit.stage:AuditStage", ("column", "classifier", "weights", "encoder_weights")),),
        (
            DATASET,
            Argument("column", "column of scored pairs to measure", option=True, default="pairs"),
            Argument("classifier", "folder or file of a timm classifier, see docs/audit.md", Path, option=True),
            ENCODER_FOLDER,
            ENCODER_WEIGHTS,
        ),
        following="report {dataset}",
        examples=("viewkit audit dataset --images 2000",),
    ),
    StageCommand(
        "pretrain",
        "Pretrain an encoder on random, selected or generated pairs.",
        "pretrain.config:PretrainConfig",
        (Step("pretrain.stage:PretrainStage", ("name", "encoder_weights")),),
        (
            DATASET,
            Argument("name", "name of the run, a folder below DATASET/runs", option=True, default="default"),
            ENCODER_WEIGHTS,
        ),
        presets="experiments.experiment:pretrain_options",
        following="evaluate {dataset}/runs/{name} TEST",
        examples=(
            "viewkit pretrain dataset --name mine --select vs2fi --policy strengthened",
            "viewkit pretrain dataset --name hard --framework simclr --select hard --views 4",
        ),
    ),
    StageCommand(
        "evaluate",
        "Accuracy of a run's encoder on a labelled dataset: kNN, linear probes, fine-tuning.",
        "evaluate.config:EvaluateConfig",
        (
            Step(
                "evaluate.stage:EvaluateStage",
                ("run", "test", "folder", "weights", "encoder_weights", "train", "corrupted"),
            ),
        ),
        (
            Argument(
                "run", "folder of the run, DATASET/runs/NAME; its dataset's labels train the classifiers", in_store=True
            ),
            Argument("test", "labelled dataset to test on", in_store=True),
            Argument("folder", "name of the result, a folder in the run's", option=True, default="eval"),
            Argument(
                "train",
                "labelled dataset to train the classifiers on, in place of the run's own",
                option=True,
                in_store=True,
            ),
            Argument(
                "corrupted", "--corruptions: folder of the arrays of CIFAR-10-C or CIFAR-100-C", Path, option=True
            ),
            ENCODER_FOLDER,
            ENCODER_WEIGHTS,
        ),
        following="report {dataset}",
        examples=(
            "viewkit evaluate dataset/runs/mine test_dataset",
            "viewkit evaluate dataset/runs/mine flowers_test --train flowers --folder flowers",
        ),
    ),
    StageCommand(
        "difficulty",
        "Measure how hard the pairs of a policy are for an encoder (JointCrop's SDF and distance).",
        "difficulty.config:DifficultyConfig",
        (Step("difficulty.stage:DifficultyStage", ("weights", "encoder_weights", "folder")),),
        (
            DATASET,
            ENCODER_FOLDER,
            ENCODER_WEIGHTS,
            Argument("folder", "name of the result, difficulty_NAME", option=True, default="difficulty"),
        ),
        following="report {dataset}",
        examples=("viewkit difficulty dataset --encoder runs/mine --joint-area 0 --folder difficulty_joint",),
    ),
    StageCommand(
        "browse",
        "Write one HTML page in which pairs are looked through, filtered and seen.",
        "browse.config:BrowseConfig",
        (Step("browse.stage:BrowseStage", ("column", "run")),),
        (
            DATASET,
            Argument("column", "column of pairs to show", option=True, default="pairs"),
            Argument(
                "run",
                "show the pairs that this run logged (--select hard --log-views), with their losses; several as a,b",
                option=True,
            ),
        ),
        page="browse/index.html",
        examples=("viewkit browse dataset", "viewkit browse dataset --column pairs_rescored --points 200000"),
    ),
    StageCommand(
        "report",
        "Write one HTML page about a dataset and its runs.",
        "report.config:ReportConfig",
        (Step("report.stage:ReportStage"),),
        closing=Closing("report.accuracy:summary_lines"),
        page="report/index.html",
        examples=("viewkit report dataset",),
    ),
)
"""The stages in the order of a full run."""

COMPARE = StageCommand(
    "compare",
    "Does it help? Train arms with paired seeds, evaluate and compare them: statistics, costs, verdicts.",
    "compare.config:CompareConfig",
    (Step("compare.stage:CompareStage"),),
    (
        DATASET,
        Argument("test", "labelled dataset to test on", in_store=True),
        Argument("name", "name of the comparison, a folder below DATASET/compare", option=True, default="default"),
        Argument(
            "experiment",
            "name or TOML file of an experiment: its runs are the arms, its [compare] the defaults",
            option=True,
        ),
    ),
    examples=(
        "viewkit compare dataset test_dataset --arms random,stored,vs2fi --seeds 6 --set pretrain.steps=600",
        "viewkit compare dataset test_dataset --experiment my.toml --lengths 150,600",
    ),
)
"""The command that runs other stages' commands before its own stage (`cli.compare`)."""
