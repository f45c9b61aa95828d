"""Models in plain torch, and the functions that give them as a user would: `own_nets.py:resnet`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn import functional as F  # noqa: N812


class Bottleneck(nn.Module):
    """He et al., Deep Residual Learning, figure 5."""

    def __init__(self, given: int, width: int, stride: int) -> None:
        super().__init__()
        out = 4 * width
        self.conv1, self.bn1 = nn.Conv2d(given, width, 1, bias=False), nn.BatchNorm2d(width)
        self.conv2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3, self.bn3 = nn.Conv2d(width, out, 1, bias=False), nn.BatchNorm2d(out)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = (
            nn.Sequential(nn.Conv2d(given, out, 1, stride, bias=False), nn.BatchNorm2d(out))
            if stride != 1 or given != out
            else nn.Identity()
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        return self.relu(self.bn3(self.conv3(y)) + self.downsample(x))


class ResNet(nn.Module):
    """ResNet-50 with layers (3, 4, 6, 3) and width 64."""

    def __init__(self, layers: tuple[int, ...], width: int, classes: int) -> None:
        super().__init__()
        self.conv1 = nn.Conv2d(3, width, 7, 2, 3, bias=False)
        self.bn1, self.relu = nn.BatchNorm2d(width), nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(3, 2, 1)
        given = width
        for number, count in enumerate(layers, 1):
            inner = width * 2 ** (number - 1)
            blocks = []
            for i in range(count):
                stride = 2 if i == 0 and number > 1 else 1
                blocks.append(Bottleneck(given, inner, stride))
                given = 4 * inner
            setattr(self, f"layer{number}", nn.Sequential(*blocks))
        self.count = len(layers)
        self.avgpool, self.fc = nn.AdaptiveAvgPool2d(1), nn.Linear(given, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        for number in range(1, self.count + 1):
            x = getattr(self, f"layer{number}")(x)
        logits: torch.Tensor = self.fc(torch.flatten(self.avgpool(x), 1))
        return logits


def conv(given: int, out: int, kernel: int = 1, stride: int = 1) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(given, out, kernel, stride, kernel // 2, bias=False),
        nn.BatchNorm2d(out),
        nn.SiLU(),
    )


class Split(nn.Module):
    """A block of YOLO's kind: a part goes on through convolutions, all parts are joined."""

    def __init__(self, given: int, out: int) -> None:
        super().__init__()
        half = out // 2
        self.first, self.last = conv(given, out), conv(3 * half, out)
        self.inner = nn.ModuleList([conv(half, half, 3), conv(half, half, 3)])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        kept, y = self.first(x).chunk(2, 1)
        parts = [kept, y]
        for part in self.inner:
            y = part(y)
        joined: torch.Tensor = self.last(torch.cat([*parts, y + parts[1]], 1))
        return joined


class Yolo(nn.Module):
    """Two scales, pooling of several sizes, heads that give boxes; a tuple and a list are given."""

    def __init__(self, width: int = 16, classes: int = 4) -> None:
        super().__init__()
        self.stem = nn.Sequential(conv(3, width, 3, 2), conv(width, 2 * width, 3, 2))
        self.fine = nn.Sequential(Split(2 * width, 2 * width), conv(2 * width, 4 * width, 3, 2))
        self.coarse = conv(4 * width, 8 * width, 3, 2)
        self.pool, self.pooled = nn.MaxPool2d(5, 1, 2), conv(24 * width, 8 * width)
        self.up, self.neck = nn.Upsample(scale_factor=2), Split(12 * width, 4 * width)
        channels = (4 * width, 8 * width)
        self.heads = nn.ModuleList(nn.Conv2d(c, 5 + classes, 1) for c in channels)

    def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, list[torch.Tensor]]:
        fine = self.fine(self.stem(x))
        coarse = self.coarse(fine)
        once = self.pool(coarse)
        coarse = self.pooled(torch.cat((coarse, once, self.pool(once)), 1))
        fine = self.neck(torch.cat((self.up(coarse), fine), 1))
        boxes = []
        for head, seen in zip(self.heads, (fine, coarse), strict=True):
            y = head(seen).flatten(2).transpose(1, 2)
            place = (y[..., :2].sigmoid() * 2 - 0.5, (y[..., 2:4].sigmoid() * 2) ** 2)
            boxes.append(torch.cat((*place, y[..., 4:].sigmoid()), -1))
        return torch.cat(boxes, 1), boxes


class ViT(nn.Module):
    """Dosovitskiy et al., with the encoder of torch."""

    def __init__(self, size: int = 32, patch: int = 8, width: int = 64) -> None:
        super().__init__()
        self.patch = nn.Conv2d(3, width, patch, patch)
        self.cls = nn.Parameter(torch.randn(1, 1, width))
        self.place = nn.Parameter(torch.randn(1, (size // patch) ** 2 + 1, width) * 0.02)
        layer = nn.TransformerEncoderLayer(
            width, 4, 4 * width, batch_first=True, norm_first=True, activation="gelu"
        )
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 10)

    def forward(self, images: torch.Tensor) -> torch.Tensor:
        x = self.patch(images).flatten(2).transpose(1, 2)
        x = torch.cat((self.cls.expand(x.shape[0], -1, -1), x), 1) + self.place
        logits: torch.Tensor = self.head(self.norm(self.encoder(x))[:, 0])
        return logits


def twice(given: int, out: int) -> nn.Sequential:
    return nn.Sequential(
        nn.Conv2d(given, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(inplace=True),
        nn.Conv2d(out, out, 3, padding=1), nn.BatchNorm2d(out), nn.ReLU(inplace=True),
    )  # fmt: skip


class UNet(nn.Module):
    """Ronneberger et al.: down, up, and what was seen on the way down."""

    def __init__(self, width: int = 16) -> None:
        super().__init__()
        self.down = nn.ModuleList([twice(3, width), twice(width, 2 * width)])
        self.middle = twice(2 * width, 4 * width)
        self.up2, self.join2 = nn.ConvTranspose2d(4 * width, 2 * width, 2, 2), twice(4 * width, 32)
        self.up1, self.join1 = nn.ConvTranspose2d(32, width, 2, 2), twice(2 * width, width)
        self.out = nn.Conv2d(width, 2, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = self.down[0](x)
        b = self.down[1](F.max_pool2d(a, 2))
        c = self.middle(F.max_pool2d(b, 2))
        b = self.join2(torch.cat((self.up2(c), b), 1))
        classes: torch.Tensor = self.out(self.join1(torch.cat((self.up1(b), a), 1)))
        return classes


class Attention(nn.Module):
    def __init__(self, width: int, other: int) -> None:
        super().__init__()
        self.q, self.k = nn.Linear(width, width), nn.Linear(other, width)
        self.v, self.out = nn.Linear(other, width), nn.Linear(width, width)

    def forward(self, x: torch.Tensor, seen: torch.Tensor) -> torch.Tensor:
        parts = (self.q(x), self.k(seen), self.v(seen))
        q, k, v = (t.unflatten(-1, (4, -1)).transpose(1, 2) for t in parts)
        mixed = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).flatten(2)
        given: torch.Tensor = self.out(mixed)
        return given


class Diffusion(nn.Module):
    """A block of a diffusion model: time, group norms, attention to itself and to a text."""

    def __init__(self, width: int = 32, text: int = 48) -> None:
        super().__init__()
        self.width = width
        self.time = nn.Sequential(nn.Linear(width, width), nn.SiLU(), nn.Linear(width, width))
        self.enter, self.leave = (
            nn.Conv2d(4, width, 3, padding=1),
            nn.Conv2d(width, 4, 3, padding=1),
        )
        self.norm1, self.norm2 = nn.GroupNorm(8, width), nn.GroupNorm(8, width)
        self.conv1 = nn.Conv2d(width, width, 3, padding=1)
        self.conv2 = nn.Conv2d(width, width, 3, padding=1)
        self.norm3, self.norm4 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.itself, self.text = Attention(width, width), Attention(width, text)

    def forward(
        self, sample: torch.Tensor, timestep: torch.Tensor, given: dict[str, Any]
    ) -> torch.Tensor:
        steps = torch.exp(-torch.arange(self.width // 2, device=sample.device) * 0.5)
        angle = timestep.float()[:, None] * steps
        time = self.time(torch.cat((angle.sin(), angle.cos()), -1).to(sample.dtype))
        x = self.enter(sample)
        y = self.conv1(F.silu(self.norm1(x))) + time[:, :, None, None]
        x = x + self.conv2(F.silu(self.norm2(y)))
        y = x.flatten(2).transpose(1, 2)
        z = self.norm3(y)
        y = y + self.itself(z, z)
        y = (y + self.text(self.norm4(y), given["text"])).transpose(1, 2)
        noise: torch.Tensor = self.leave(y.reshape(x.shape))
        return noise


def resnet(batch: int = 2, width: int = 16, size: int = 64) -> tuple[Any, ...]:
    model = ResNet((1, 1, 1, 1), width, 10)
    images = torch.randn(batch, 3, size, size)
    return model, images, F.cross_entropy, torch.randint(10, (batch,))


def resnet50(batch: int = 1) -> tuple[Any, ...]:
    images = torch.randn(batch, 3, 224, 224)
    return ResNet((3, 4, 6, 3), 64, 1000), images, F.cross_entropy, torch.randint(9, (batch,))


def yolo(batch: int = 1) -> tuple[Any, ...]:
    def loss(output: Any) -> torch.Tensor:
        return torch.stack([boxes.square().mean() for boxes in output[1]]).sum()

    return Yolo(), (torch.randn(batch, 3, 64, 64),), loss


def vit(batch: int = 1) -> tuple[Any, ...]:
    images = {"images": torch.randn(batch, 3, 32, 32)}
    return ViT(), images, F.cross_entropy, torch.randint(10, (batch,))


def unet() -> tuple[Any, ...]:
    return UNet(), torch.randn(1, 3, 32, 32), F.cross_entropy, torch.randint(2, (1, 32, 32))


def diffusion(batch: int = 1) -> tuple[Any, ...]:
    text = {"text": torch.randn(batch, 7, 48)}
    inputs = {"sample": torch.randn(batch, 4, 8, 8), "timestep": torch.full((batch,), 7)}
    loss: Callable[[Any], Any] = lambda noise: noise.square().mean()  # noqa: E731
    return Diffusion(), {**inputs, "given": text}, loss


def mlp(batch: int = 1, width: int = 64) -> tuple[Any, ...]:
    model = nn.Sequential(nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, 10))
    return model, torch.randn(batch, width), F.cross_entropy, torch.randint(10, (batch,))
