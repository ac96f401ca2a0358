"""The numbers of the paper, to be set beside ours: B. M. Le and S. S. Woo, SEE: Spherical Embedding Expansion, PAKDD 2024.

Tables 1 and 2. Like nearly all papers of the field it chose on the test classes, epoch by epoch: comparable with numbers of
``protocol: paper`` alone. A size is the paper's own word: R ResNet-50, B BN-Inception (not in timm), De DeiT-S, DN DINO ViT-S,
V ViT-S from ImageNet-21k, and the dimension of the embeddings. On Cars-196, De128 + SEE is 85.2 in the extended abstract, as
here, and 85.7 in the authors' repository.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

SOURCE = "Le and Woo, SEE: Spherical Embedding Expansion, PAKDD 2024"

_BACKBONES = {
    "R": ("resnet50",),
    "De": ("deit_small_patch16_224", "deit_small_distilled_patch16_224"),
    "DN": ("vit_small_patch16_224.dino",),
    "V": ("vit_small_patch16_224", "vit_small_patch16_224.augreg_in21k", "vit_small_patch16_224.augreg_in21k_ft_in1k"),
}
_LOSSES = {
    "NSoftmax": "nsoftmax",
    "CosFace": "cosface",
    "ArcFace": "arcface",
    "ProxyNCA++": "proxynca_pp",
    "SoftTriple": "soft_triple",
    "MS": "multi_similarity",
    "PA": "proxy_anchor",
}
_WITH_SEE = " + SEE"

# Columns: CUB-200 R@1 2 4, Cars-196 R@1 2 4, SOP R@1 10 100, In-Shop R@1 10 20. A dash: not given.
_TABLE_1_COLUMNS = {"cub200": (1, 2, 4), "cars196": (1, 2, 4), "sop": (1, 10, 100), "inshop": (1, 10, 20)}
_TABLE_1 = """
NSoftmax      R128   56.5 69.6 79.9   81.6 88.7 93.4   75.2 88.7 95.2   86.6 96.8 97.8
MIC           R128   66.1 76.8 85.6   82.6 89.1 93.2   77.2 89.4 94.6   88.2 97.0 -
XBM           R128   - - -            - - -            80.6 91.6 96.2   91.3 97.8 98.4
XBM           B512   65.8 75.9 84.0   82.0 88.7 93.1   79.5 90.8 96.1   89.9 97.6 98.4
HTL           B512   57.1 68.8 78.7   81.4 88.0 92.7   74.8 88.3 94.8   80.9 94.3 95.8
MS            B512   65.7 77.0 86.3   84.1 90.4 94.0   78.2 90.5 96.0   89.7 97.9 98.5
SoftTriple    B512   65.4 76.4 84.5   84.5 90.7 94.5   78.6 86.6 91.8   - - -
PA            B512   68.4 79.2 86.8   86.1 91.7 95.0   79.1 90.8 96.2   91.5 98.1 98.8
NSoftmax      R512   61.3 73.9 83.5   84.2 90.4 94.4   78.2 90.6 96.2   86.6 97.5 98.4
ProxyNCA++    R512   69.0 79.8 87.3   86.5 92.5 95.7   80.7 92.0 96.7   90.4 98.1 98.8
Hyp           R512   65.5 76.2 84.9   81.9 88.8 93.1   79.9 91.5 96.5   90.1 98.0 98.7
PA + SEE      R512   69.3 79.0 87.3   88.5 93.4 95.9   80.3 91.5 96.5   92.8 98.3 98.8
IRT_R         De128  72.6 81.9 88.7   - - -            83.4 93.0 97.0   91.1 98.1 98.6
Hyp           De128  74.7 84.5 90.1   82.1 89.1 93.4   83.0 93.4 97.5   90.9 97.9 98.6
PA + SEE      De128  75.1 84.1 90.1   85.2 91.5 94.8   83.0 93.1 97.2   91.2 98.0 98.6
Hyp           DN128  78.3 86.0 91.2   86.0 91.9 95.2   84.6 94.1 97.7   92.6 98.4 99.0
PA + SEE      DN128  78.8 86.5 91.6   89.0 93.6 96.3   84.8 94.1 97.5   92.6 98.6 99.0
Hyp           V128   84.0 90.2 94.2   82.7 89.7 93.9   85.5 94.9 98.1   92.7 98.4 98.9
PA + SEE      V128   84.1 90.2 93.5   86.8 91.7 95.1   85.9 94.7 97.9   92.8 98.6 99.1
IRT_R         De384  76.6 85.0 91.1   - - -            84.2 93.7 97.3   91.9 98.1 98.9
zero-shot     De384  70.6 81.3 88.7   52.8 65.1 76.2   58.3 73.9 85.9   37.9 64.7 72.1
Hyp           De384  77.8 86.6 91.9   86.4 92.2 95.5   83.3 93.5 97.4   90.5 97.8 98.5
PA + SEE      De384  78.3 86.5 91.9   88.8 93.7 96.3   83.6 93.4 97.4   91.7 98.1 98.7
zero-shot     DN384  70.8 81.1 88.8   42.9 53.9 64.2   63.4 78.1 88.3   46.1 71.1 77.5
Hyp           DN384  80.9 87.6 92.4   89.2 94.1 96.7   85.1 94.4 97.8   92.4 98.4 98.9
PA + SEE      DN384  81.9 88.8 92.9   91.5 95.2 97.3   85.5 94.6 97.9   93.0 98.5 99.1
zero-shot     V384   83.1 90.4 94.4   47.8 60.2 72.2   62.1 77.7 89.0   43.2 70.2 76.7
Hyp           V384   85.6 91.4 94.8   86.5 92.1 95.3   85.9 94.9 98.1   92.5 98.3 98.8
PA + SEE      V384   85.8 91.4 94.6   88.8 93.8 96.4   86.3 95.0 98.2   93.2 98.6 99.1
"""

# Cars-196 R@1 2 4 8 16.
_TABLE_2_COLUMNS = {"cars196": (1, 2, 4, 8, 16)}
_TABLE_2 = """
NSoftmax          R512   84.2 90.4 94.4 96.9 -
NSoftmax + SEE    R512   86.5 92.0 95.4 97.4 98.7
CosFace           R512   86.9 92.3 95.3 97.4 98.6
CosFace + SEE     R512   87.1 92.5 95.4 97.5 98.7
ArcFace           R512   86.8 92.1 95.3 97.3 98.7
ArcFace + SEE     R512   87.6 92.8 95.9 97.6 98.7
ProxyNCA++        R512   86.5 92.5 95.7 97.7 -
ProxyNCA++ + SEE  R512   88.3 93.4 96.4 98.0 99.0
PA                B512   86.1 91.7 95.0 97.0 98.3
PA + SEE          B512   86.2 91.9 95.2 97.2 98.4
PA                R512   87.7 92.7 95.5 97.3 98.4
PA + SEE          R512   88.5 93.4 95.9 97.5 98.8
"""


@dataclass(frozen=True)
class PaperRow:
    """One method on one dataset.

    method: as the paper writes it. loss: our name of its loss; None where we have none. see: with SEE around it.
    size: the paper's word for backbone and dimension. recalls: k -> Recall@k in percent.
    """

    table: int
    method: str
    size: str
    dataset: str
    recalls: Mapping[int, float]

    @property
    def see(self) -> bool:
        return self.method.endswith(_WITH_SEE)

    @property
    def loss(self) -> str | None:
        return _LOSSES.get(self.method.removesuffix(_WITH_SEE))


def _rows(table: int, text: str, columns: Mapping[str, tuple[int, ...]]) -> Iterator[PaperRow]:
    ks = [(dataset, k) for dataset, dataset_ks in columns.items() for k in dataset_ks]
    for line in text.strip().splitlines():
        *method, size = line.split()[: -len(ks)]
        cells = dict(zip(ks, line.split()[-len(ks) :], strict=True))
        for dataset in columns:
            recalls = {k: float(cell) for (of, k), cell in cells.items() if of == dataset and cell != "-"}
            if recalls:
                yield PaperRow(table, " ".join(method), size, dataset, recalls)


PAPER_ROWS = (*_rows(1, _TABLE_1, _TABLE_1_COLUMNS), *_rows(2, _TABLE_2, _TABLE_2_COLUMNS))


def paper_size(backbone: str, embedding_dim: int) -> str | None:
    """The paper's word for a timm backbone and a dimension: ``De128``; None for a backbone that it does not have."""
    return next((f"{letter}{embedding_dim}" for letter, names in _BACKBONES.items() if backbone in names), None)


def paper_rows(dataset: str, backbone: str, embedding_dim: int) -> list[PaperRow]:
    """The paper's rows of a dataset, backbone and dimension, each method once: where both tables have it, from Table 2."""
    size = paper_size(backbone, embedding_dim)
    found = {row.method: row for row in PAPER_ROWS if (row.dataset, row.size) == (dataset, size)}
    return list(found.values())
