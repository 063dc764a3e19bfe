"""Convolutional networks for images, channels first. Every size from 8×8 on is accepted; the layers adapt.

Pooling comes before ReLU: the two commute, values and gradients are the same, and ReLU has a quarter of the work.
"""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional as F

from covey.models.classifier import Classifier
from covey.models.spec import Spec

GROUPS = 32  # of GroupNorm in ResNet-18: batch statistics could not be averaged over clients


def lenet(channels: int, height: int, width: int, classes: int) -> Classifier:
    """Two 5×5 convolutions with pooling, then 120–84–classes.

    28×28 and less is padded to keep its size in the first layer (as LeNet-5 pads 28 to 32), and images too small for
    a second unpadded 5×5 are padded there too.
    """
    first = 2 if min(height, width) <= 28 else 0
    second = 2 if min(height, width) < 16 else 0
    height, width = (((side + 2 * first - 4) // 2 + 2 * second - 4) // 2 for side in (height, width))
    body = nn.Sequential(
        nn.Conv2d(channels, 6, 5, padding=first),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(6, 16, 5, padding=second),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(16 * height * width, 120),
        nn.ReLU(),
        nn.Linear(120, 84),
        nn.ReLU(),
    )
    return Classifier(body, 84, classes)


def cnn5(channels: int, height: int, width: int, classes: int) -> Classifier:
    """Two pairs of 5×5 convolution (32, 64 channels, padded) and 2×2 pooling, then 512: the CNN of the FedAvg paper."""
    body = nn.Sequential(
        nn.Conv2d(channels, 32, 5, padding=2),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Conv2d(32, 64, 5, padding=2),
        nn.MaxPool2d(2),
        nn.ReLU(),
        nn.Flatten(),
        nn.Linear(64 * (height // 4) * (width // 4), 512),
        nn.ReLU(),
    )
    return Classifier(body, 512, classes)


def lfw_cnn(channels: int, height: int, width: int, classes: int) -> Classifier:
    """Three 3×3 convolutions (32, 64, 128 channels), each with 2×2 pooling, then 256: after Melis et al. 2019."""
    layers: list[nn.Module] = []
    for fan_in, fan_out in ((channels, 32), (32, 64), (64, 128)):
        layers += [nn.Conv2d(fan_in, fan_out, 3, padding=1), nn.MaxPool2d(2), nn.ReLU()]
    layers += [nn.Flatten(), nn.Linear(128 * (height // 8) * (width // 8), 256), nn.ReLU()]
    return Classifier(nn.Sequential(*layers), 256, classes)


class Residual(nn.Module):
    """Two 3×3 convolutions beside a shortcut, which is a 1×1 convolution where the shape changes."""

    def __init__(self, fan_in: int, fan_out: int, stride: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(fan_in, fan_out, 3, stride, 1, bias=False)
        self.norm1 = nn.GroupNorm(GROUPS, fan_out)
        self.conv2 = nn.Conv2d(fan_out, fan_out, 3, 1, 1, bias=False)
        self.norm2 = nn.GroupNorm(GROUPS, fan_out)
        self.shortcut = nn.Sequential()
        if stride != 1 or fan_in != fan_out:
            self.shortcut.append(nn.Conv2d(fan_in, fan_out, 1, stride, bias=False))
            self.shortcut.append(nn.GroupNorm(GROUPS, fan_out))

    def forward(self, x: Tensor) -> Tensor:
        h = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(h)) + self.shortcut(x))


class PlainOrder(nn.Module):
    """Puts each channel's pixels side by side in memory: GroupNorm is slow on the channels-last order of the samples."""

    def forward(self, x: Tensor) -> Tensor:
        return x.contiguous()


class Average(nn.Module):
    """Mean over the image. Written out because adaptive pooling has a slow gradient under vmap."""

    def forward(self, x: Tensor) -> Tensor:
        return x.mean(dim=(2, 3))


def resnet18(channels: int, classes: int) -> Classifier:
    """ResNet-18 for small images: 3×3 stem without pooling, GroupNorm instead of BatchNorm."""
    stem = nn.Conv2d(channels, 64, 3, 1, 1, bias=False)
    layers: list[nn.Module] = [PlainOrder(), stem, nn.GroupNorm(GROUPS, 64), nn.ReLU()]
    for fan_in, fan_out, stride in ((64, 64, 1), (64, 128, 2), (128, 256, 2), (256, 512, 2)):
        layers += [Residual(fan_in, fan_out, stride), Residual(fan_out, fan_out, 1)]
    return Classifier(nn.Sequential(*layers, Average()), 512, classes)


CNN = Spec(
    name="cnn",
    title="two 5×5 convolutions with pooling, three linear layers (LeNet-like)",
    layout="image",
    make=lambda shape, classes, _: lenet(shape[0], shape[1], shape[2], classes),
    parameters=62_006,
)
CNN5 = Spec(
    name="cnn5",
    title="two 5×5 convolutions (32, 64) with 2×2 pooling, linear layer of 512",
    layout="image",
    make=lambda shape, classes, _: cnn5(shape[0], shape[1], shape[2], classes),
    parameters=2_156_490,
)
LFW_CNN = Spec(
    name="lfw_cnn",
    title="three 3×3 convolutions (32, 64, 128) with 2×2 pooling, linear layer of 256",
    layout="image",
    make=lambda shape, classes, _: lfw_cnn(shape[0], shape[1], shape[2], classes),
    parameters=620_362,
)
RESNET18 = Spec(
    name="resnet18",
    title="ResNet-18 for small images, GroupNorm",
    layout="image",
    make=lambda shape, classes, _: resnet18(shape[0], classes),
    parameters=11_173_962,
)
