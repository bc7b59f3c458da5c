"""Stage `foreground`: fit the component that tells foreground, once, before `generate` or `quality` uses it."""

import time
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import torch
from jaxtyping import Bool, Float, Float64, UInt8
from torch import Tensor

from viewkit.pipelines.encoders.encoder import Encoder
from viewkit.pipelines.encoders.names import encoder_reads, resolve_precision
from viewkit.pipelines.encoders.open import encoder_inputs, open_encoder
from viewkit.pipelines.encoders.stored_views import IMAGES, generated_input, views_per_pass
from viewkit.pipelines.engine.contract import Crew, FitStage, PartFn, Run
from viewkit.pipelines.engine.workers import Report
from viewkit.pipelines.foreground.artifact import INDEX, MASKS, Foreground
from viewkit.pipelines.foreground.component import fit_component
from viewkit.pipelines.foreground.config import ForegroundConfig
from viewkit.pipelines.foreground.passes import (
    EncoderFacts,
    SquaresFound,
    SquaresPart,
    StoredViews,
    TokensFound,
    TokensPart,
    WholeImages,
)
from viewkit.pipelines.foreground.samples import (
    FitSample,
    ImageSample,
    Tokens,
    ViewSample,
    add_squares,
    passes_over_images,
    passes_over_views,
)
from viewkit.pipelines.foreground.share import LEVELS, adaptive_level, count_foreground, fit_threshold
from viewkit.pipelines.foreground.sheet import draw_masks
from viewkit.pipelines.foreground.sign import released_sign, resolve_sign, resolve_signs, sign_evidence
from viewkit.pipelines.pairs.names import PAIRS
from viewkit.shards.codecs import encode_png
from viewkit.shards.dataset import Dataset
from viewkit.shards.document import digest
from viewkit.shards.errors import ConfigError
from viewkit.shards.files import write_atomic
from viewkit.shards.spans import spanned

FOLDERS = {"images": "foreground", "views": "foreground_views"}
"""What a component is fitted on, and the artifact it is written to."""


class ForegroundStage(FitStage[ForegroundConfig]):
    """of: ``images``, whole ones, as `generate` looks at them; or ``views``, stored ones, as `quality` does.

    weights: a generator's folder, for an encoder in it. encoder_weights: safetensors file with the weights of a
    ``timm:`` or ``open_clip:`` encoder, instead of the published ones. batch_size: images per forward pass.

    pairs: with ``views``, the column of the pairs they are of.

    The sign of a fit of whole images is decided where it is used (`Foreground.with_sign`): levels that do not depend on
    the foreground need none, and another one no other fit. A fit of views has the one it is asked for.

    Version 4: of whole images both signs are kept.
    """

    name = "foreground"
    version = 4
    in_parts: ClassVar[bool] = True
    shown_as: ClassVar[str] = "foreground"
    holds: ClassVar[Mapping[str, str]] = {
        "foreground.safetensors": "component [k], threshold, mean and std [d] of the embeddings",
        "foreground.json": "encoder fingerprint, sign and its evidence, eigenvalue ratio, share, images per level",
        "masks.png": "contact sheet of foreground masks under both signs",
        "index.npy": "for retrieval: embedding [d] of every image, in the order of `images`",
    }

    def __init__(
        self,
        weights: Path | None = None,
        batch_size: int = 16,
        encoder_weights: Path | None = None,
        of: str = "images",
        pairs: str = PAIRS,
    ) -> None:
        if of not in FOLDERS:
            raise ConfigError(f"--of is '{of}'; a foreground is fitted on {' or '.join(FOLDERS)}")
        self.weights, self.encoder_weights = weights, encoder_weights
        self.batch_size, self.of, self.pairs = batch_size, of, pairs

    @property
    def writes(self) -> str:
        plain = self.of == "images" or self.pairs == PAIRS
        return FOLDERS[self.of] if plain else f"{FOLDERS[self.of]}_{self.pairs}"

    @property
    def takes_sign(self) -> str:
        """The command that is to be run with ``--sign`` where the sign stays open, for messages."""
        if self.of == "images":
            return "viewkit generate"
        return f"viewkit foreground --of views{self._pairs_option}"

    @property
    def _pairs_option(self) -> str:
        return "" if self.pairs == PAIRS else f" --pairs {self.pairs}"

    def reads(self, config: ForegroundConfig) -> tuple[str, ...]:
        columns = (IMAGES,) if self.of == "images" else (IMAGES, self.pairs)
        return (*columns, *encoder_reads(config.encoder))

    def on_device(self, config: ForegroundConfig, device: str) -> ForegroundConfig:
        return replace(config, precision=resolve_precision(config.precision, device, config.encoder))

    def settings(self, config: ForegroundConfig) -> dict[str, Any]:
        """Without the options that this kind of fit has no use for."""
        unused = ("side_px", "sign") if self.of == "images" else ("index",)
        return {name: value for name, value in super().settings(config).items() if name not in unused}

    def check(self, config: ForegroundConfig) -> None:
        if self.of == "images" and config.side_px is not None:
            raise ConfigError(f"side_px is {config.side_px}; it goes with --of views, leave it out")
        if self.of == "images" and config.sign != "auto":
            raise ConfigError(
                f"sign is '{config.sign}', and a fit of whole images keeps both; give it to 'viewkit generate'"
            )

    def inputs(self, config: ForegroundConfig, dataset: Dataset) -> Mapping[str, str]:
        files = encoder_inputs(config.encoder, self.weights, self.encoder_weights)
        inputs = {**super().inputs(config, dataset), **files}
        return {**inputs, **generated_input(dataset, self.name, self.pairs)} if self.of == "views" else inputs

    def part_work(self, config: ForegroundConfig, run: Run) -> PartFn:
        """Of a `TokensPart` a `TokensFound`, of a `SquaresPart` a `SquaresFound`."""
        encoder = self._encoder(config, run)
        of_images = self.of == "images"
        passes = WholeImages(encoder, run, self.batch_size) if of_images else StoredViews(encoder, run, self.pairs)

        def look(part: TokensPart | SquaresPart, report: Report) -> TokensFound | SquaresFound:
            return passes.tokens(part, report) if isinstance(part, TokensPart) else passes.squares(part, report)

        return look

    def fit(self, config: ForegroundConfig, run: Run) -> Mapping[str, Any]:
        sample = self._sample(config, run)
        run.progress.start(self.name, sample.steps, "images")
        assert run.crew is not None
        found = find_tokens(sample, run.crew)
        moments, encoder = found.check()
        statistics = found.statistics()
        component = fit_component(moments.covariance(), moments.mean())
        for doubt in component.doubts():
            run.progress.message(f"foreground: {doubt}; look at {self.writes}/masks.png")
        parts = sample.squares_parts(found, component.vector.numpy(), is_alone=run.crew.is_alone)
        scores, flat, shown = add_squares(run.crew.do(parts))
        write_atomic(run.folder / MASKS, encode_png(_sheet(shown, encoder, scores, config.share)))
        evidence = sign_evidence(
            scores.reshape(-1, *encoder.grid), flat.reshape(-1, *encoder.grid), released_sign(component.vector)
        )
        if self.of == "views":
            signs, sign = {}, resolve_sign(evidence, config.sign, self.writes, self.takes_sign)
        else:
            signs = resolve_signs(evidence, self.writes, self.takes_sign)
            sign = -1 if signs["auto"] == "-" else 1
        is_open = bool(signs) and signs["auto"] not in ("+", "-")
        if is_open:
            run.progress.message(signs["auto"])
        threshold = fit_threshold(sign * scores.ravel(), config.share)
        opposite = fit_threshold(-sign * scores.ravel(), config.share)

        counts = count_foreground(sign * scores, threshold)
        levels = [adaptive_level(int(count), scores.shape[1]) for count in counts]
        numbers = {
            "images": len(scores),
            "undecodable": found.undecodable,
            "non_finite": found.non_finite,
            "tokens": moments.tokens,
            "grid": list(encoder.grid),
            "sample_digest": digest(sample.keys),
            "sign": "open" if is_open else "+" if sign > 0 else "-",
            "t": round(evidence.t, 3),
            "skewness": round(evidence.skewness, 4),
            "flat_patches": round(evidence.flat, 4),
            "released_sign": {1: "+", -1: "-", None: None}[evidence.released],
            "largest_channel": component.largest_channel,
            "largest_channel_share": round(component.largest_channel_share, 4),
            "eigenvalue_ratio": component.eigenvalue_ratio,
            "explained": component.explained,
            "foreground_share": float(counts.mean() / scores.shape[1]),
            "images_per_level": {str(level): levels.count(level) for level in LEVELS},
        }
        Foreground(
            sign * component.vector,
            threshold,
            encoder.fingerprint,
            statistics,
            opposite=opposite,
            signs=signs,
        ).write(run.folder, numbers)
        return numbers

    def plan(self, config: ForegroundConfig, run: Run) -> Mapping[str, Any]:
        images = run.dataset.column(IMAGES).num_rows
        encoder = self._encoder(config, run)
        if self.of == "images":
            sample, passes = passes_over_images(run.dataset, config.sample, config.index)
        else:
            sample, passes = passes_over_views(run.dataset, config.sample, self.pairs)
        count = self.batch_size if self.of == "images" else views_per_pass(encoder)
        batch = [np.zeros((encoder.side_px, encoder.side_px, 3), np.uint8)] * count
        encoder.encode_images(batch)
        start = time.monotonic()
        encoder.encode_images(batch)
        image_s = (time.monotonic() - start) / count
        return {"images": images, "sample": sample, "encoded": passes, "estimated_s": round(passes * image_s, 1)}

    def _encoder(self, config: ForegroundConfig, run: Run) -> Encoder:
        return open_encoder(
            config.encoder,
            run.dataset,
            weights=self.weights,
            encoder_weights=self.encoder_weights,
            device=run.device,
            precision=resolve_precision(config.precision, run.device, config.encoder),
            side_px=config.side_px,
        )

    def _sample(self, config: ForegroundConfig, run: Run) -> FitSample:
        if self.of == "views":
            return ViewSample(run.dataset, config.sample, self.pairs)
        index = run.folder / INDEX if config.index else None
        return ImageSample(run.dataset, config.sample, batch_size=self.batch_size, index=index)


class ViewsForegroundStage(ForegroundStage):
    """The fit on stored views that `quality` starts with."""

    shown_as: ClassVar[str] = "foreground_views"
    holds: ClassVar[Mapping[str, str]] = {
        "foreground.safetensors": "component [k] of the views' maps, pointing to foreground; threshold",
        **{name: ForegroundStage.holds[name] for name in ("foreground.json", "masks.png")},
    }

    def __init__(self, weights: Path | None = None, encoder_weights: Path | None = None, pairs: str = PAIRS) -> None:
        super().__init__(weights, encoder_weights=encoder_weights, of="views", pairs=pairs)

    @property
    def takes_sign(self) -> str:
        return f"viewkit quality{self._pairs_option}"


def find_tokens(sample: FitSample, crew: Crew) -> Tokens:
    """What the first pass finds in the sample."""
    found = Tokens(sample)
    for _, part in crew.do(sample.tokens_parts(is_alone=crew.is_alone)):
        found.add(part)
    return found


@spanned("sheet")
def _sheet(
    shown: Float[Tensor, "m 3 s s"], encoder: EncoderFacts, scores: Float64[np.ndarray, "n t"], share: float
) -> UInt8[np.ndarray, "h w 3"]:
    """Contact sheet of the sample's first squares."""

    def masks(sign: int) -> Bool[np.ndarray, "m gh gw"]:
        threshold = fit_threshold(sign * scores.ravel(), share)
        return (sign * scores[: len(shown)] > threshold).reshape(-1, *encoder.grid)

    mean, std = (torch.tensor(values)[:, None, None] for values in (encoder.mean, encoder.std))
    pixels = (255 * (shown * std + mean)).round().clamp(0, 255).to(torch.uint8).permute(0, 2, 3, 1).numpy()
    return draw_masks(list(pixels), masks(1), masks(-1))
