"""Train a Vision Transformer on handwritten digits, in one file to copy and change.

    pip install "transformer-blocks[vision]"
    python examples/vision_transformer.py

The model is that of Dosovitskiy et al. 2020 (https://arxiv.org/abs/2010.11929, section 3.1): an
image is cut into patches, a linear layer projects the pixels of each to a vector, a class token is
put before them, learned positional encodings are added, and an encoder follows. A linear layer
classifies the encoder's output for the class token. The encoder is that of a text: its tokens are
patches.

The images are the 1,797 digits of 8 x 8 pixels that scikit-learn contains (``load_digits``). They
are split in the order of the file: 1,097 to train with, 300 to choose sizes and rates with, the
last 400 to test, once for each run. Do not shuffle them first. Similar images are close to each
other in the file, as the digits of one person would be: for most images, the nearest other image is
at most 130 places away. After a random split, the same persons would probably be in the training
and the test images, and the accuracy is higher.

Two other models are trained for comparison: the same model without positional encodings, for which
an image is a bag of patches, and a linear layer on the pixels (logistic regression). To train on
other images, replace ``load_images``.
"""

import argparse
import json
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from transformer_blocks import LearnedPositionalEncoding, PreNorm, build_encoder, record_attention
from transformer_blocks.explorer import Explorer, explore
from transformer_blocks.explorer.packages import check_packages
from transformer_blocks.explorer.plots import new_figure
from transformer_blocks.explorer.style import LINES, PALETTES
from transformer_blocks.files import write_atomically

CLASSES, SIZE, PATCH = 10, 8, 2  # digits; pixels on a side of an image and of a patch
TRAINING, VALIDATION, TEST = slice(1097), slice(1097, 1397), slice(1397, None)
D_MODEL = 64
STEPS = 2500
SHOWN = 3  # the test image whose attention is drawn


def load_images() -> tuple[Tensor, Tensor]:
    """Load the images, with pixels from 0 to 1, (N, SIZE, SIZE), and their digits, (N,)."""
    from sklearn.datasets import load_digits

    digits = load_digits()
    return torch.tensor(digits.images / 16).float(), torch.tensor(digits.target)


def cut_into_patches(images: Tensor, size: int) -> Tensor:
    """Cut images into square patches, row by row: (B, H, W) to (B, patches, size * size)."""
    patches = images.unfold(1, size, size).unfold(2, size, size)  # (B, rows, columns, size, size)
    return patches.flatten(3).flatten(1, 2)


def shift(images: Tensor) -> Tensor:
    """Move each image by at most one pixel in each direction, at random."""
    padded, moves = F.pad(images, (1, 1, 1, 1)), torch.randint(3, (2, len(images), 1))
    rows, columns = moves + torch.arange(SIZE)  # (B, SIZE) each
    return padded[torch.arange(len(images))[:, None, None], rows[:, :, None], columns[:, None]]


class VisionTransformer(nn.Module):
    """The Vision Transformer: equations 1 to 4 of the paper.

    Args:
        positions: Adds positional encodings to the vectors of the class token and the patches.
    """

    def __init__(self, positions: nn.Module) -> None:
        super().__init__()
        self.projection = nn.Linear(PATCH**2, D_MODEL)
        self.class_token = nn.Parameter(torch.zeros(D_MODEL))
        self.positions = positions
        self.encoder = build_encoder(
            num_layers=2,
            d_model=D_MODEL,
            num_heads=4,
            d_ff=2 * D_MODEL,
            dropout=0.0,
            activation=F.gelu,
            residual=PreNorm,  # which adds the last layer normalisation, too
        )
        self.output = nn.Linear(D_MODEL, CLASSES)

    def forward(self, images: Tensor) -> Tensor:
        """Compute the logits of the classes: (B, H, W) to (B, CLASSES)."""
        return self.classify(cut_into_patches(2 * images - 1, PATCH))

    def classify(self, patches: Tensor) -> Tensor:
        """Compute the logits from patches, of shape (B, patches, PATCH * PATCH)."""
        vectors = self.projection(patches)
        class_token = self.class_token.expand(len(patches), 1, -1)
        encoded = self.encoder(self.positions(torch.cat((class_token, vectors), dim=1)))
        return self.output(encoded[:, 0])


def make_models() -> dict[str, tuple[nn.Module, Callable[[Tensor], Tensor], float]]:
    """Make the models to compare, each with its data augmentation and its maximum learning rate.

    Of the few augmentations and rates that were tried, these had the highest validation accuracy.

    Returns:
        For the name of each model the model, the function that changes its training images, and the
        maximum of its learning rate.
    """
    positions = LearnedPositionalEncoding(D_MODEL, max_length=1 + (SIZE // PATCH) ** 2)
    linear = nn.Sequential(nn.Flatten(), nn.Linear(SIZE**2, CLASSES))
    return {
        "Vision Transformer": (VisionTransformer(positions), shift, 4e-3),
        "without positions": (VisionTransformer(nn.Identity()), nn.Identity(), 4e-3),
        "linear layer on pixels": (linear, nn.Identity(), 2e-2),
    }


def train(
    model: nn.Module,
    images: Tensor,
    labels: Tensor,
    *,
    change: Callable[[Tensor], Tensor],
    rate: float,
    steps: int,
) -> None:
    """Train a model with batches of 64 images, each of which ``change`` augments first."""
    optimizer = torch.optim.Adam(model.parameters())
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, max_lr=rate, total_steps=steps)
    for _ in range(steps):
        batch = torch.randint(len(images), (64,))
        loss = F.cross_entropy(model(change(images[batch])), labels[batch])
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        schedule.step()


@torch.no_grad()
def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    """Compute the share of images that are classified correctly."""
    return (model(images).argmax(-1) == labels).float().mean().item()


@torch.no_grad()
def attention_to_patches(model: nn.Module, image: Tensor) -> list[list[list[float]]]:
    """Compute the attention weights from the class token to each patch: (layers, H, patches)."""
    with record_attention(model) as weights:
        model(image.unsqueeze(0))
    return [calls[0][0, :, 0, 1:].tolist() for calls in weights.values()]


def explore_patches(model: nn.Module, image: Tensor) -> Explorer:
    """Make a page of all attention weights of an image; its tokens are the rows and columns."""
    side = range(SIZE // PATCH)
    patches = [f"{row},{column}" for row in side for column in side]
    return explore(model, image.unsqueeze(0), tokens=["class", *patches])


def similarities(positions: Tensor) -> list[list[float]]:
    """Compute the cosine similarity of each two positional encodings: (P, d_model) to (P, P)."""
    return F.cosine_similarity(positions[:, None], positions, dim=-1).tolist()


def run(seeds: Sequence[int], *, steps: int, page: Path) -> dict[str, Any]:
    """Train and test every model for each seed; save a page, and return what :func:`draw` shows."""
    images, labels = load_images()
    results: dict[str, Any] = {"image": images[TEST][SHOWN].tolist(), "runs": []}
    for seed in seeds:
        torch.manual_seed(seed)
        models, scores = make_models(), {}
        for name, (model, change, rate) in models.items():
            plan: dict[str, Any] = {"change": change, "rate": rate, "steps": steps}
            train(model, images[TRAINING], labels[TRAINING], **plan)
            of_parts = [accuracy(model, images[part], labels[part]) for part in (VALIDATION, TEST)]
            print(f"seed {seed}  {name:22}  accuracy: validation {of_parts[0]:.1%}, "
                  f"test {of_parts[1]:.1%}", flush=True)  # fmt: skip
            scores[name] = of_parts
        results["runs"].append(scores)
        if seed == seeds[0]:
            model = models["Vision Transformer"][0]
            results["attention"] = attention_to_patches(model, images[TEST][SHOWN])
            explore_patches(model, images[TEST][SHOWN]).save(page)
            positions = model.get_parameter("positions.weight")[1:]  # without the class token's
            results["similarity"] = similarities(positions.detach())
    return results


def draw(results: dict[str, Any]) -> Any:
    """Draw an image in patches, the attention to them, the positions and the test accuracies."""
    from transformer_blocks.explorer.figure import colour_map, style_axes  # needs matplotlib

    figure, palette, side = new_figure(10.0, 6.4), PALETTES["light"], SIZE // PATCH
    top, bottom = figure.subfigures(2, 1, height_ratios=(1.0, 1.15))
    left, right = top.subfigures(1, 2, width_ratios=(1.0, 1.8))
    axes = left.subplots()
    axes.imshow(results["image"], cmap="gray_r", vmax=1.3)
    axes.hlines([PATCH * k - 0.5 for k in range(side + 1)], -0.5, SIZE - 0.5, color=LINES[1])
    axes.vlines([PATCH * k - 0.5 for k in range(side + 1)], -0.5, SIZE - 0.5, color=LINES[1])
    axes.set_axis_off()
    left.suptitle(f"a test image in {side * side} patches", fontsize=10.5)
    heads = torch.tensor(results["attention"])  # (layers, H, patches)
    blue, both = colour_map(palette.weights), colour_map(palette.differences)
    right.suptitle("attention from the class token to these patches", fontsize=10.5)
    grid = right.subplots(*heads.shape[:2])
    for layer, row in enumerate(grid):
        for head, axes in enumerate(row):
            weights = heads[layer, head].view(side, side)
            axes.imshow(weights.tolist(), cmap=blue, vmin=0, vmax=heads.max().item())
            axes.set_title(f"layer {layer}, head {head}", fontsize=8, pad=2)
            axes.set(xticks=[], yticks=[])
    left, right = bottom.subfigures(1, 2, width_ratios=(1.0, 1.25))
    left.suptitle("encoding of each position, compared with all", fontsize=10.5)
    for number, axes in enumerate(left.subplots(side, side).flat):
        similarity = torch.tensor(results["similarity"][number]).view(side, side)
        shown = axes.imshow(similarity.tolist(), cmap=both, vmin=-1, vmax=1)
        axes.set(xticks=[], yticks=[])
    bar = left.colorbar(shown, ax=left.axes, label="cosine similarity", ticks=(-1, 0, 1))
    bar.outline.set_edgecolor(palette.muted)
    axes, names = right.subplots(), [*results["runs"][0]]
    style_axes(axes)
    for row, name in enumerate(names):
        shares = [100 * run[name][1] for run in results["runs"]]
        axes.barh(row, mean(shares), height=0.5, color=LINES[0], alpha=0.3)
        axes.plot(shares, [row] * len(shares), "o", color=LINES[0], markersize=5)
        axes.text(mean(shares) / 2, row, f"{mean(shares):.1f}", ha="center", va="center")
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    axes.set(xlabel="test accuracy (%): each seed, and their mean", xlim=(0, 100))
    axes.spines[["top", "right"]].set_visible(False)
    return figure


def main(arguments: Sequence[str] | None = None) -> None:
    """Run the program, and write the picture and the numbers that it shows."""
    name = Path(__file__).stem
    parser = argparse.ArgumentParser(
        description=__doc__,
        allow_abbrev=False,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--steps", type=int, default=STEPS, metavar="N",
                        help=f"updates of each training (default: {STEPS})")  # fmt: skip
    parser.add_argument("--seeds", type=int, nargs="+", metavar="N", default=[0, 1, 2],
                        help="one for each run (default: 0 1 2)")  # fmt: skip
    parser.add_argument("--output", type=Path, default=Path("runs", name), metavar="FOLDER",
                        help=f"where to write the picture (default: runs/{name})")  # fmt: skip
    options = parser.parse_args(arguments)
    check_packages("this program", "matplotlib", "sklearn", extra="vision")
    from transformer_blocks.explorer.figure import save_png

    picture = options.output / f"{name}.png"
    options.output.mkdir(parents=True, exist_ok=True)
    page = picture.with_suffix(".html")
    results = run(options.seeds, steps=options.steps, page=page)
    origin = f"measured on {platform.machine()}, cpu, torch {torch.__version__}"
    content = {"command": f"python examples/{name}.py", "origin": origin, **results}
    write_atomically(picture.with_suffix(".json"), f"{json.dumps(content, indent=1)}\n".encode())
    save_png(draw(results), picture, dpi=160)
    print(f"page: {page}\npicture: {picture}")


if __name__ == "__main__":
    main()
