"""Makes the archives here, with Python's tarfile and zipfile: python make.py"""

import gzip
import io
import pathlib
import tarfile
import zipfile

HERE = pathlib.Path(__file__).parent
GOLDEN = HERE.parent / "mxnet/golden/mxnet-1.9.1"
MLP = (GOLDEN / "checkpoints/module_mlp-0007.params").read_bytes()
SYMBOL = (GOLDEN / "checkpoints/module_mlp-symbol.json").read_bytes()
TINY = (GOLDEN / "checkpoints/bf16_mixed-0000.params").read_bytes()
EMPTY = b"{}"
# As SageMaker's image classification leaves them.
SAGEMAKER = [
    ("model_algo-1-shapes.json", b'[{"shape": [1, 10], "name": "data"}]'),
    ("model_algo-1-symbol.json", SYMBOL),
    ("model_algo-1-0000.params", MLP),
    ("hyperparams.json", EMPTY),
]


def info(name, size=0, kind=tarfile.REGTYPE, **more):
    made = tarfile.TarInfo(name)
    made.size, made.type, made.mtime = size, kind, 0
    for key, value in more.items():
        setattr(made, key, value)
    return made


def tar(members, form):
    """An archive with the two blocks of zeros that end it, and no more."""
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form, encoding="utf-8") as archive:
        for head, content in members:
            archive.addfile(head if isinstance(head, tarfile.TarInfo) else info(head, len(content)), io.BytesIO(content))
        end = archive.offset
    return out.getvalue()[: end + 1024]


def write(name, content):
    (HERE / name).write_bytes(content)


def zipped(members, method):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in members:
            archive.writestr(zipfile.ZipInfo(name), content, method)
    return out.getvalue()


LONG = "a/" * 60 + "long-" * 20 + "0000.params"
write("sagemaker.tar.gz", gzip.compress(tar(SAGEMAKER, tarfile.GNU_FORMAT), mtime=0))
write("small.tar", tar([("symbol.json", EMPTY), ("net-0000.params", TINY)], tarfile.USTAR_FORMAT))
write("small.tar.gz", gzip.compress(tar([("net-0000.params", TINY)], tarfile.USTAR_FORMAT), mtime=0))
write("gnu-long.tar", tar([(LONG, TINY)], tarfile.GNU_FORMAT))
write("pax-long.tar", tar([("größe/" + LONG, TINY)], tarfile.PAX_FORMAT))
write("ustar-prefix.tar", tar([("folder/" * 20 + "net.params", TINY)], tarfile.USTAR_FORMAT))
write("pax-size.tar", tar([(info("net.params", len(TINY), pax_headers={"size": str(len(TINY))}), TINY)], tarfile.PAX_FORMAT))
write(
    "links.tar",
    tar(
        [
            (info("net.params", kind=tarfile.SYMTYPE, linkname="/etc/passwd"), b""),
            (info("hard.params", kind=tarfile.LNKTYPE, linkname="net.params"), b""),
            (info("pipe.params", kind=tarfile.FIFOTYPE), b""),
            (info("folder.params", kind=tarfile.DIRTYPE), b""),
            ("./real.params", TINY),
        ],
        tarfile.GNU_FORMAT,
    ),
)
write("two.tar", tar([("b-0000.params", TINY), ("readme.txt", b"two of them"), ("in/a-0000.params", MLP)], tarfile.GNU_FORMAT))
write("twice.tar", tar([("net.params", MLP), ("net.params", TINY)], tarfile.GNU_FORMAT))
write("gzip-inside.tar", tar([("net.params.gz", gzip.compress(TINY, mtime=0))], tarfile.GNU_FORMAT))
write("nested.tar", tar([("inner.tar", tar([("net.params", TINY)], tarfile.GNU_FORMAT))], tarfile.GNU_FORMAT))
write("model.mar", zipped(SAGEMAKER + [("MAR-INF/MANIFEST.json", EMPTY)], zipfile.ZIP_DEFLATED))
write("small-stored.zip", zipped([("net-0000.params", TINY), ("symbol.json", EMPTY)], zipfile.ZIP_STORED))
write("small-deflated.zip", zipped([("net-0000.params", TINY), ("symbol.json", EMPTY)], zipfile.ZIP_DEFLATED))
