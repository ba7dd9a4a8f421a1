"""What transformers, convolutional nets and optimizers use meets no fallback, and trains as on plain tensors."""

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import tessera
from tessera import Replicate, Shard, _C, distribute_module, distribute_tensor


class Encoder(nn.Module):
    """Embedding, attention with a mask, feed-forward, and the loss of a language model."""

    def __init__(self):
        super().__init__()
        self.embedding = nn.Embedding(11, 8)
        self.position = nn.Parameter(torch.randn(6, 8) * 0.1)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, activation="gelu",
                                                batch_first=True, norm_first=True)
        self.norm = nn.RMSNorm(8)
        self.head = nn.Linear(8, 11)

    def forward(self, tokens):
        x = self.embedding(tokens) + self.position
        return self.head(self.norm(self.layer(x)))

    def loss(self, tokens):
        logits = self(tokens)
        return F.cross_entropy(logits[:, :-1].reshape(-1, 11), tokens[:, 1:].reshape(-1))


class Gpt(Encoder):
    """The same with causal attention written by hand, rotary positions and tied weights."""

    def __init__(self):
        super().__init__()
        self.qkv = nn.Linear(8, 24, bias=False)
        self.gate = nn.Linear(8, 32)
        self.out = nn.Linear(16, 8)

    def rotated(self, x, turn):
        first, second = x.chunk(2, dim=-1)
        return x * turn.cos() + torch.cat((-second, first), dim=-1) * turn.sin()

    def forward(self, tokens):
        x = self.embedding(tokens)
        b, s, _ = x.shape
        q, k, v = (part.reshape(b, s, 2, 4).transpose(1, 2)
                   for part in self.qkv(self.norm(x)).split(8, dim=-1))
        turn = self.position[:s, :4]
        q, k = self.rotated(q, turn), self.rotated(k, turn)
        x = x + F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(b, s, 8)
        up, gate = self.gate(x).chunk(2, dim=-1)
        x = x + self.out(up * F.silu(gate))
        return F.linear(x, self.embedding.weight)


class Convolutional(nn.Module):
    """Convolutions of all kinds, normalisation, pooling, skip connections, a classifier."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Sequential(nn.Conv2d(2, 4, 3, padding=1, bias=False), nn.BatchNorm2d(4),
                                  nn.ReLU(inplace=True), nn.MaxPool2d(2))
        self.block = nn.Sequential(nn.Conv2d(4, 4, 3, padding=1, groups=2), nn.GroupNorm(2, 4),
                                   nn.SiLU(), nn.Conv2d(4, 4, 1), nn.InstanceNorm2d(4, affine=True),
                                   nn.Hardswish())
        self.down = nn.Conv2d(4, 6, 3, stride=2, padding=1)
        self.up = nn.ConvTranspose2d(6, 4, 2, stride=2)
        self.pool = nn.AdaptiveAvgPool2d(1)
        self.classifier = nn.Linear(4, 3)

    def forward(self, images):
        x = self.stem(images)
        x = x + self.block(x)
        x = F.interpolate(self.up(F.relu6(self.down(x))), scale_factor=2, mode="bilinear")
        x = F.avg_pool2d(F.pad(x, (1, 1, 1, 1)), 2)
        return self.classifier(torch.flatten(self.pool(x), 1))

    def loss(self, images):
        wanted = (images.mean((1, 2, 3)) > 0).long()
        return F.cross_entropy(self(images), wanted, label_smoothing=0.1)


TOKENS = (torch.arange(5 * 6) * 7 % 11).reshape(5, 6)
IMAGES = torch.linspace(-2, 2, 5 * 2 * 8 * 8).sin().reshape(5, 2, 8, 8)


def made(kind):
    torch.manual_seed(3)
    return kind()


def trained(net, x, optimizer_kind, steps=3, **options):
    optimizer = optimizer_kind(net.parameters(), **options)
    losses = []
    for _ in range(steps):
        def closure():
            optimizer.zero_grad()
            loss = net.loss(x)
            loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            return loss

        losses.append(float(optimizer.step(closure).detach()))
    return losses


def expect_served(on_ranks, kind, x, optimizer_kind, cut_weights=False, **options):
    expected = trained(made(kind), x, optimizer_kind, **options)
    nets = [made(kind) for _ in range(4)]

    def shard(_name, module, mesh):
        if not cut_weights:
            return
        for name, parameter in list(module.named_parameters(recurse=False)):
            placement = Shard(0) if parameter.dim() else Replicate()
            module.register_parameter(
                name, nn.Parameter(distribute_tensor(parameter.detach(), mesh, [placement])))

    def check(mesh):
        net = distribute_module(nets[mesh.get_rank()], mesh, shard)
        log = _C.FallbackLog()
        losses = trained(net, distribute_tensor(x, mesh, [Shard(0)]), optimizer_kind, **options)
        missing = sorted(set(log.ops()))
        del log
        assert losses == pytest.approx(expected, rel=2e-3)
        return missing

    assert on_ranks(check)[0] == []


@pytest.mark.parametrize("cut_weights", [False, True], ids=["replicated", "sharded"])
@pytest.mark.parametrize("kind", [Encoder, Gpt])
def test_transformers(on_ranks, kind, cut_weights):
    expect_served(on_ranks, kind, TOKENS, torch.optim.AdamW, cut_weights, lr=0.01)


@pytest.mark.parametrize("cut_weights", [False, True], ids=["replicated", "sharded"])
def test_convolutional_nets(on_ranks, cut_weights):
    expect_served(on_ranks, Convolutional, IMAGES, torch.optim.SGD, cut_weights, lr=0.05, momentum=0.9)


# All but Rprop, which writes through masks: the fallback serves that; and LBFGS, which makes tensors by
# Tensor.new where a parameter has no gradient: torch refuses that for ours.
OPTIMIZERS = [
    (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "nesterov": True, "weight_decay": 0.01}),
    (torch.optim.SGD, {"lr": 0.05, "foreach": False}),
    (torch.optim.SGD, {"lr": 0.05, "momentum": 0.9, "fused": True}),
    (torch.optim.Adam, {"lr": 0.01, "amsgrad": True}),
    (torch.optim.Adam, {"lr": 0.01, "foreach": False}),
    (torch.optim.Adam, {"lr": 0.01, "fused": True}),
    (torch.optim.AdamW, {"lr": 0.01}),
    (torch.optim.AdamW, {"lr": 0.01, "fused": True}),
    (torch.optim.NAdam, {"lr": 0.01}),
    (torch.optim.RAdam, {"lr": 0.01}),
    (torch.optim.Adamax, {"lr": 0.01}),
    (torch.optim.Adadelta, {"lr": 0.5}),
    (torch.optim.Adagrad, {"lr": 0.05}),
    (torch.optim.RMSprop, {"lr": 0.01, "momentum": 0.5, "centered": True}),
    (torch.optim.ASGD, {"lr": 0.05}),
]


def name_of(case):
    return case[0].__name__ + "".join(f"-{name}" for name, value in case[1].items()
                                      if isinstance(value, bool) and value)


@pytest.mark.parametrize("case", OPTIMIZERS, ids=name_of)
def test_optimizers(case):
    kind, options = case

    def on_ranks(fn):
        return tessera.run_ranks(2, lambda rank: fn(tessera.init_device_mesh("cpu", (2,))), timeout=60)

    expect_served(on_ranks, Gpt, TOKENS, kind, cut_weights=True, **options)
