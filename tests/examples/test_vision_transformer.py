"""The Vision Transformer, in one file that users copy."""

import json
from pathlib import Path

import pytest
import torch
from sklearn.datasets import load_digits
from torch import Tensor

import vision_transformer
from transformer_blocks import LearnedPositionalEncoding, MultiHeadAttention
from vision_transformer import (
    D_MODEL,
    PATCH,
    SIZE,
    TEST,
    TRAINING,
    VALIDATION,
    VisionTransformer,
    accuracy,
    attention_to_patches,
    cut_into_patches,
    load_images,
    main,
    make_models,
    shift,
)

PATCHES = (SIZE // PATCH) ** 2


def new_model() -> VisionTransformer:
    torch.manual_seed(0)
    model = VisionTransformer(LearnedPositionalEncoding(D_MODEL, max_length=1 + PATCHES))
    torch.nn.init.normal_(model.get_parameter("positions.weight"))
    torch.nn.init.normal_(model.class_token)
    return model.eval()


@pytest.mark.parametrize(("height", "width", "size"), [(8, 8, 2), (8, 8, 4), (6, 9, 3), (4, 4, 1)])
def test_patches_put_together_again_are_the_image(height: int, width: int, size: int) -> None:
    images = torch.rand(3, height, width)
    patches = cut_into_patches(images, size)
    assert patches.shape == (3, height // size * (width // size), size * size)
    again = torch.zeros_like(images)
    for number in range(patches.shape[1]):
        row, column = (size * index for index in divmod(number, width // size))
        square = patches[:, number].view(3, size, size)
        again[:, row : row + size, column : column + size] = square
    assert torch.equal(again, images)


def test_shuffled_patches_with_shuffled_positions_have_the_same_scores() -> None:
    model, patches = new_model(), torch.randn(5, PATCHES, PATCH * PATCH)
    scores, order = model.classify(patches), torch.randperm(PATCHES)
    shuffled = model.classify(patches[:, order])
    assert not torch.allclose(shuffled, scores, atol=1e-3)
    positions = model.get_parameter("positions.weight")
    with torch.no_grad():
        positions[1:] = positions[1:][order]
    torch.testing.assert_close(model.classify(patches[:, order]), scores)


def test_without_positions_an_image_is_a_bag_of_patches() -> None:
    torch.manual_seed(0)
    model = VisionTransformer(torch.nn.Identity()).eval()
    patches = torch.randn(5, PATCHES, PATCH * PATCH)
    torch.testing.assert_close(
        model.classify(patches[:, torch.randperm(PATCHES)]), model.classify(patches)
    )


def test_the_last_vector_of_the_class_token_is_classified() -> None:
    model, encoded = new_model(), list[Tensor]()
    model.encoder.register_forward_hook(lambda module, args, output: encoded.append(output))
    scores = model(torch.rand(3, SIZE, SIZE))
    assert encoded[0].shape == (3, 1 + PATCHES, D_MODEL)
    assert torch.equal(scores, model.output(encoded[0][:, 0]))


def test_every_pixel_changes_the_scores_and_no_image_those_of_another() -> None:
    model = new_model()
    images = torch.rand(1, SIZE, SIZE).expand(1 + SIZE * SIZE, -1, -1).clone()
    images[1:].view(SIZE * SIZE, -1).diagonal().add_(1.0)
    scores = model(images)
    assert (scores[1:] - scores[0]).abs().amax(1).min() > 1e-5
    torch.testing.assert_close(model(images[3:4]), scores[3:4])


def test_a_shifted_image_is_moved_by_at_most_one_pixel() -> None:
    torch.manual_seed(0)
    image = torch.zeros(SIZE, SIZE)
    image[2, 5] = 1.0
    shifted = shift(image.expand(200, -1, -1))
    places = {tuple(place.nonzero()[0].tolist()) for place in shifted}
    assert places == {(row, column) for row in (1, 2, 3) for column in (4, 5, 6)}
    assert torch.equal(shifted.sum((1, 2)), torch.ones(200))
    corner = torch.zeros(200, SIZE, SIZE)
    corner[:, 0, 0] = 1.0
    assert set(shift(corner).sum((1, 2)).tolist()) == {0.0, 1.0}  # outside the image is nothing


def test_the_splits_have_every_image_once_in_the_order_of_the_file() -> None:
    images, labels = load_images()
    assert images.shape == (1797, SIZE, SIZE)
    file = load_digits()
    assert torch.equal(images.double() * 16, torch.from_numpy(file.images))  # pixels from 0 to 16
    assert torch.equal(labels, torch.from_numpy(file.target))
    parts = [images[part] for part in (TRAINING, VALIDATION, TEST)]
    assert [len(part) for part in parts] == [1097, 300, 400]
    assert torch.equal(torch.cat(parts), images)
    assert set(labels[TEST].tolist()) == set(range(10))


def test_only_the_vision_transformer_gets_shifted_images() -> None:
    changes = {name: change for name, (_, change, _) in make_models().items()}
    assert changes.pop("Vision Transformer") is shift
    assert set(changes) == {"without positions", "linear layer on pixels"}
    images = torch.rand(2, SIZE, SIZE)
    assert all(change(images) is images for change in changes.values())


def test_the_attention_is_that_of_the_class_token_without_itself() -> None:
    model, image = new_model(), torch.rand(SIZE, SIZE)
    weights = torch.tensor(attention_to_patches(model, image))
    assert weights.shape == (2, 4, PATCHES)
    assert weights.sum(-1).max() < 1.0
    layer = model.encoder.layers[0]
    assert isinstance(layer.self_attention, MultiHeadAttention)
    x = model.projection(cut_into_patches(2 * image[None] - 1, PATCH))
    x = model.positions(torch.cat((model.class_token.expand(1, 1, -1), x), dim=1))
    x = layer.get_submodule("self_attention_residual.norm")(x)
    attention = layer.self_attention.attention_weights(x, x)
    torch.testing.assert_close(weights[0], attention[0, :, 0, 1:])


def test_each_run_tests_each_model_once_on_images_it_never_trained_on_and_a_seed_repeats_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    images, _ = load_images()
    trained: list[Tensor] = []
    tested: list[Tensor] = []
    train = vision_transformer.train

    def record_training(model: torch.nn.Module, images: Tensor, *rest: Tensor, **plan: int) -> None:
        trained.append(images)
        train(model, images, *rest, **plan)  # type: ignore[arg-type]

    def record_test(model: torch.nn.Module, images: Tensor, labels: Tensor) -> float:
        tested.append(images)
        return accuracy(model, images, labels)

    monkeypatch.setattr(vision_transformer, "train", record_training)
    monkeypatch.setattr(vision_transformer, "accuracy", record_test)
    main(["--steps", "2", "--seeds", "0", "0", "--output", str(tmp_path)])
    assert len(trained) == 6
    assert all(torch.equal(each, images[:1097]) for each in trained)
    assert sum(torch.equal(each, images[1397:]) for each in tested) == 6
    assert {file.name for file in tmp_path.iterdir()} == {
        "vision_transformer.html",
        "vision_transformer.json",
        "vision_transformer.png",
    }
    content = json.loads((tmp_path / "vision_transformer.json").read_text("utf-8"))
    first, again = content["runs"]
    assert first == again  # of one seed
    assert capsys.readouterr().out.endswith("vision_transformer.png\n")


@pytest.mark.slow
def test_a_vision_transformer_learns_where_patches_are(tmp_path: Path) -> None:
    main(["--seeds", "5", "--output", str(tmp_path)])
    content = json.loads((tmp_path / "vision_transformer.json").read_text("utf-8"))
    (scores,) = content["runs"]
    (transformer, bag, linear) = (score for _, score in scores.values())
    assert transformer > linear > 0.85 > bag
    rows, columns = torch.arange(PATCHES) // 4, torch.arange(PATCHES) % 4
    distance = (rows[:, None] - rows).abs() + (columns[:, None] - columns).abs()
    similarity = torch.tensor(content["similarity"])
    assert similarity[distance == 1].mean() > similarity[distance > 1].mean() + 0.2
