"""What blob writes, read by the frameworks themselves, and what they write, read by blob; value for value, on fresh random files.

`cargo xtask interop` runs this. Each framework gets an environment of its own below `--work`, with the versions that the `.txt` files
pin; Caffe is built from the sources in the package `brocolli-caffe`. What cannot be had on this machine is named as not run.
"""
import argparse
import datetime
import json
import os
import platform
import shutil
import subprocess
import sys

HERE = os.path.dirname(os.path.abspath(__file__))
CAFFE = "brocolli-caffe==9.0.2"
CAFFE_FILES = ["blob", "syncedmem", "common", "util/math_functions", "util/upgrade_proto", "util/io", "util/hdf5"]
CAFFE_LIBRARIES = ["protobuf", "glog", "gflags", "boost_thread", "boost_system", "boost_filesystem", "openblas",
                   "hdf5_serial_hl", "hdf5_serial"]
COUNT = 200
# The sides that work with the Python package: script and version of CPython.
PACKAGED = {"batch": ("batch", "3.11"), "dlpack11": ("dlpack", "3.11"), "dlpack13": ("dlpack", "3.13")}
RESNET = "mxnet/real/dmlc__web-data__gluoncv__models__cifar_resnet20_v1"


class Absent(Exception):
    """Something that this machine does not have; the reason."""


def call(command, **more):
    done = subprocess.run(command, capture_output=True, text=True, **more)
    if done.returncode != 0:
        raise Absent("%s: %s" % (os.path.basename(command[0]), (done.stderr or done.stdout).strip()[-300:]))
    return done.stdout


class Work:
    def __init__(self, blob, folder, wheels):
        self.blob, self.folder, self.wheels, self.sides = os.path.abspath(blob), os.path.abspath(folder), wheels, {}
        written = (json.loads(line) for line in call([self.blob, "formats", "--json"]).splitlines())
        rows = [row for answer in written for row in answer.get("formats", [answer])]
        self.writes = {row["name"] for row in rows if row.get("write")}
        self.reads = {row["name"] for row in rows if row.get("read")}

    def python(self, name, version):
        """The interpreter of an environment with what `NAME.txt` pins, made once."""
        environment = os.path.join(self.folder, "env-" + name)
        python = os.path.join(environment, "bin", "python")
        stamp, pins = os.path.join(environment, "installed.txt"), open(os.path.join(HERE, name + ".txt")).read()
        if not os.path.exists(stamp) or open(stamp).read() != pins:
            base = shutil.which("python" + version)
            if base is None:
                raise Absent("no python" + version)
            call([base, "-m", "venv", "--clear", environment])
            call([python, "-m", "pip", "install", "-q", "--only-binary=:all:", "-r", os.path.join(HERE, name + ".txt")])
            open(stamp, "w").write(pins)
        return python

    def side(self, name):
        """The command that runs a framework's side."""
        if name not in self.sides:
            try:
                self.sides[name] = self.made(name)
            except Absent as reason:
                self.sides[name] = reason
        if isinstance(self.sides[name], Absent):
            raise self.sides[name]
        return self.sides[name]

    def made(self, name):
        if name == "caffe":
            return [self.caffe()]
        if name in PACKAGED:
            script, version = PACKAGED[name]
            return [self.package(name, version), os.path.join(HERE, "side_%s.py" % script)]
        script, version = {"mxnet": ("mxnet", "3.8"), "mxnet2": ("mxnet", "3.8"), "neoml": ("neoml", "3.10"), "torch": ("torch", "3.10"),
                           "mxnet_nets": ("mxnet_nets", "3.8"), "forward_mxnet": ("forward_mxnet", "3.8"), "onnx_mxnet_nets": ("onnx_mxnet_nets", "3.8")}.get(name, (name, "3.11"))
        shared = {"mxnet_nets": "mxnet", "forward_mxnet": "mxnet", "onnx_mxnet_nets": "mxnet", "onnx_ssd": "onnx"}
        environment = shared.get(name, name if name in ("mxnet", "mxnet2", "neoml", "torch", "onnx") else "arrays")
        return [self.python(environment, version), os.path.join(HERE, "side_%s.py" % script)]

    def package(self, name, version):
        """The interpreter of an environment with the Python package, which `cargo xtask wheel` has built."""
        found = [name for name in os.listdir(self.wheels) if name.endswith(".whl")] if os.path.isdir(self.wheels) else []
        if len(found) != 1:
            raise Absent("no wheel: run `cargo xtask wheel` first")
        python = self.python(name, version)
        wheel = os.path.join(self.wheels, found[0])
        call([python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", "--force-reinstall", wheel])
        return python

    def caffe(self):
        folder = os.path.join(self.folder, "caffe")
        program = os.path.join(folder, "caffe_side")
        source = os.path.join(HERE, "caffe_side.cc")
        if os.path.exists(program) and os.path.getmtime(program) > os.path.getmtime(source):
            return program
        for tool in ("protoc", "g++"):
            if shutil.which(tool) is None:
                raise Absent("no " + tool)
        os.makedirs(os.path.join(folder, "caffe", "proto"), exist_ok=True)
        call([sys.executable, "-m", "pip", "download", "-q", "--no-deps", "--no-binary", ":all:", "-d", folder, CAFFE])
        name = CAFFE.replace("==", "-")
        shutil.unpack_archive(os.path.join(folder, name + ".tar.gz"), folder, **({"filter": "data"} if sys.version_info >= (3, 12) else {}))
        caffe = os.path.join(folder, name)
        protos = os.path.join(caffe, "src/caffe/proto")
        call(["protoc", "-I" + protos, "--cpp_out=" + os.path.join(folder, "caffe/proto"), protos + "/caffe.proto"])
        files = [os.path.join(caffe, "src/caffe", file + ".cpp") for file in CAFFE_FILES]
        flags = ["-O1", "-w", "-DCPU_ONLY", "-DBOOST_BIND_GLOBAL_PLACEHOLDERS", "-I" + folder, "-I" + caffe + "/include"]
        flags += ["-I/usr/include/hdf5/serial"]  # where Debian has it
        files += [os.path.join(folder, "caffe/proto/caffe.pb.cc"), source]
        call(["g++", *flags, *files, "-o", program, *("-l" + library for library in CAFFE_LIBRARIES)])
        return program

    def ask(self, side, *arguments, **variables):
        side = self.side(side)
        try:
            output = call([*side, *arguments], env={**os.environ, **variables})
        except Absent as reason:  # the framework is there and fell over: a failure, not an absence
            raise RuntimeError(str(reason)) from reason
        return json.loads(output.strip().splitlines()[-1])

    def convert(self, source, target, *options, command="convert"):
        """`blob convert`; what it refuses is told with its first line."""
        done = subprocess.run([self.blob, command, source, "-o", target, *options], capture_output=True, text=True)
        return None if done.returncode == 0 else done.stderr.strip().splitlines()[0]

    def place(self, title):
        folder = os.path.join(self.folder, "files", title.replace(" ", "-").replace(",", ""))
        shutil.rmtree(folder, ignore_errors=True)
        os.makedirs(folder)
        return folder


def compare(wanted, found, refused):
    """Files, tensors, and what differs, in words."""
    wrong = ["%s: %s" % item for item in refused.items()]
    for key, tensors in wanted.items():
        if key not in refused and found.get(key) != tensors:
            wrong.append("%s: wanted %s, found %s" % (key, json.dumps(tensors)[:300], json.dumps(found.get(key))[:300]))
    return len(wanted), sum(len(tensors) for tensors in wanted.values()), wrong


def theirs(work, side, format, extension, seed, **variables):
    """They write, blob reads: into npz, which NumPy reads."""
    if format not in work.reads:
        raise Absent("blob does not read " + format)
    folder = work.place("%s to blob" % side)
    wanted = work.ask(side, "write", folder, str(seed), str(COUNT), **variables)
    path = lambda key, end: os.path.join(folder, key + end)
    refused = {key: work.convert(path(key, extension), path(key, ".npz")) for key in wanted}
    refused = {key: reason for key, reason in refused.items() if reason}
    found = work.ask("arrays", "read", *(path(key, ".npz") for key in wanted if key not in refused))
    return compare(wanted, found, refused)


def ours(work, side, format, extension, seed, options=(), maker="arrays", **variables):
    """NumPy or safetensors writes, blob converts, they read."""
    if format not in work.writes:
        raise Absent("blob does not write " + format)
    folder = work.place("blob to %s %s" % (side, " ".join(options)))
    wanted = work.ask(maker, "write", folder, str(seed), str(COUNT), **variables)
    source = "." + variables.get("FORMAT", "npz")
    path = lambda key, end: os.path.join(folder, key + end)
    refused = {key: work.convert(path(key, source), path(key, extension), "--to", format, *options) for key in wanted}
    refused = {key: reason for key, reason in refused.items() if reason}
    found = work.ask(side, "read", *(path(key, extension) for key in wanted if key not in refused), **variables)
    return compare(wanted, found, refused)


def computed(work, folder, sources):
    """PyTorch computes with what blob made of each net's weights: as the framework itself does with its file, but for rounding."""
    path = lambda key: os.path.join(folder, key + ".safetensors")
    refused = {key: work.convert(source, path(key), "--names", "torch") for key, source in sources.items()}
    refused = {key: reason for key, reason in refused.items() if reason}
    found = work.ask("torch", "read", *(path(key) for key in sources if key not in refused))
    wrong = ["%s: %s" % item for item in refused.items()]
    wrong += ["%s: %s" % (key, off) for key, off in found.items() if not isinstance(off, float) or not off <= 1e-5]
    return len(sources), sum(1 for off in found.values() if isinstance(off, float)), wrong


def caffe_nets(work):
    """The nets of tests/data/caffe/forward, with what OpenCV 4.14 computed of them."""
    folder, data = work.place("Caffe's nets"), os.path.join(HERE, "..", "data", "caffe", "forward")
    sources = {name[:-len(".caffemodel")]: os.path.join(data, name) for name in os.listdir(data) if name.endswith(".caffemodel")}
    for key in sources:
        shutil.copy(os.path.join(data, key.split("_v")[0] + ".npz"), os.path.join(folder, key + ".npz"))
    return computed(work, folder, sources)


def onnx_nets(work, side, extension):
    """Well-known nets as ONNX models: the checker accepts each, and onnxruntime and OpenCV 5 compute as OpenCV 4.14 or MXNet."""
    folder, stem = work.place("ONNX of %s" % side), os.path.join(os.environ.get("BLOB_REAL_DATA", "none"), RESNET)
    is_real = side == "onnx_mxnet_nets" and os.path.exists(stem + "-symbol.json")
    keys = work.ask(side, "write", folder, *(["2,3,32,32", stem] if is_real else []))
    path = lambda key, end: os.path.join(folder, key + end)
    options = {key: ["--net", path(key, ".prototxt")] for key in keys}
    if side == "onnx_mxnet_nets":  # the symbol lies beside the weights
        options = {key: ["--input", "data=" + shapes["data"]] for key, shapes in keys.items()}
    refused = {key: work.convert(path(key, extension), path(key, ".onnx"), *options[key]) for key in keys}
    refused = {key: reason for key, reason in refused.items() if reason}
    found = work.ask("onnx", "read", *(path(key, ".onnx") for key in keys if key not in refused))
    wrong = ["%s: %s" % item for item in refused.items()]
    wrong += ["%s: %s" % (key, off) for key, off in found.items() if not isinstance(off, float) or not off <= 1e-4]
    return len(keys), sum(1 for off in found.values() if isinstance(off, float)), wrong


def ssd(work):
    """DetectionOutput of random settings on random inputs, ties among them, in onnxruntime and in OpenCV 5 in both forms: a naive loop's rows."""
    told = json.loads(call([*work.side("onnx_ssd"), work.blob, "1000"]))
    return told["inputs"] // 50, sum(told["equal"].values()), told["wrong"]


def mxnet_nets(work):
    """Random nets, and GluonCV's ResNet-20 where the files of other people are at hand."""
    folder, real = work.place("MXNet's nets"), os.path.join(os.environ.get("BLOB_REAL_DATA", "none"), RESNET)
    real = [real + "-symbol.json", real + "-0000.params"]
    keys = work.ask("mxnet_nets", "write", folder, "24", str(COUNT), *(real if os.path.exists(real[0]) else []))
    return computed(work, folder, {key: os.path.join(folder, key + ".params") for key in keys})


def forward(work, side, source, extension, seed):
    """They write a net and compute with it; NumPy computes with its weights under PyTorch's names, and with its BatchNorms folded."""
    folder = work.place("forward pass of %s" % side)
    wanted = work.ask(side, "write", folder, str(seed), str(COUNT))
    refused = {}
    for key in wanted:
        path = lambda end: os.path.join(folder, key + end)
        net = ("--net", path(".prototxt")) if source == ".npz" else ("--symbol", path("-symbol.json"))
        steps = [(path(source), path(".torch.npz"), "--names", "torch", *net), (path(".folded.raw.npz"), path(".folded.npz"), "--names", "torch", *net),
                 (path(source), path(".eps.npz"), "--names", "torch", "--eps", "1e-5", *net)]
        if source != extension:
            steps.append((path(source), path(extension)))
        reasons = [work.convert(path(source), path(".folded.raw.npz"), *net, command="fold"), *(work.convert(*step) for step in steps)]
        if side == "forward_opencv":
            reasons.append(work.convert(path(extension), path(".folded" + extension), *net, command="fold"))
        if side == "forward_mxnet":
            reasons.append(work.convert(path(source), path(".refolded.params"), *net, command="fold"))
        refused.update({key: reason for reason in reasons if reason})
    found = work.ask(side, "read", *(os.path.join(folder, key + extension) for key in wanted if key not in refused))
    return compare(wanted, found, refused)


def keras(work):
    """OpenCV computes with a net for BGR; NumPy with its weights as TensorFlow has them, for RGB. The prototxt alone tells the order."""
    folder = work.place("weights for Keras")
    wanted, refused = work.ask("keras_opencv", "write", folder, "26", str(COUNT)), {}
    for key in wanted:
        path = lambda end: os.path.join(folder, key + end)
        extents = open(path(".extents")).read()
        options = ["--net", path(".prototxt"), "--rgb", "--layout", "hwio", "--fc-from", extents]
        if "BatchNorm" in open(path(".prototxt")).read():
            options += ["--bn", "fold-factor"]
        reasons = [work.convert(path(".npz"), path(".keras.npz"), *options), work.convert(path(".npz"), path(".caffemodel"))]
        refused.update({key: reason for reason in reasons if reason})
    found = work.ask("keras_opencv", "read", *(os.path.join(folder, key + ".caffemodel") for key in wanted if key not in refused))
    return compare(wanted, found, refused)


def batch(work, engine):
    """The recipe of docs/python/batch.md on two workers, of which one is killed in the middle; run again, all is done."""
    folder = work.place("batch by " + engine)
    said = work.ask("batch", engine, folder)
    return said["files"], said["tensors"], said["wrong"]


def dlpack(work, side, library, seed):
    """Tensors of a library to files by `save_file`, and from files, as views where files have them aligned."""
    folder = work.place("%s by DLPack %d" % (library, seed))
    said = work.ask(side, library, folder, str(seed), str(COUNT))
    return said["files"], said["tensors"], said["wrong"]


def oneline(reason):
    return " ".join(str(reason).split()).replace("|", "/")


FLOATS = "float32 float64"
ROWS = [
    ("MXNet 1.9.1 writes", lambda w: theirs(w, "mxnet", "params", ".params", 1)),
    ("MXNet 1.9.1 reads (V2)", lambda w: ours(w, "mxnet", "params", ".params", 2)),
    ("MXNet 1.9.1 reads (V1)", lambda w: ours(w, "mxnet", "params", ".params", 3, ("--params-version", "1"))),
    ("MXNet 1.9.1 reads (V0)", lambda w: ours(w, "mxnet", "params", ".params", 4, ("--params-version", "0"))),
    ("MXNet 1.9.1 reads (V3)", lambda w: ours(w, "mxnet", "params", ".params", 5, ("--params-version", "3"), NPSHAPE="1")),
    ("MXNet 2.0.0b1 writes (V3)", lambda w: theirs(w, "mxnet2", "params", ".params", 6, NPSHAPE="1")),
    ("MXNet 2.0.0b1 writes (V2)", lambda w: theirs(w, "mxnet2", "params", ".params", 19, NPSHAPE="0")),
    ("MXNet 2.0.0b1 reads (V3)", lambda w: ours(w, "mxnet2", "params", ".params", 7, ("--params-version", "3"), NPSHAPE="1")),
    ("MXNet 2.0.0b1 reads (V2)", lambda w: ours(w, "mxnet2", "params", ".params", 20, NPSHAPE="0")),
    ("Caffe writes", lambda w: theirs(w, "caffe", "caffemodel", ".caffemodel", 8)),
    ("Caffe reads, float", lambda w: ours(w, "caffe", "caffemodel", ".caffemodel", 9, ONLY="float32")),
    ("Caffe reads, float and double", lambda w: ours(w, "caffe", "caffemodel", ".caffemodel", 10, ONLY=FLOATS)),
    ("OpenCV 4.14 reads, forward pass", lambda w: ours(w, "opencv", "caffemodel", ".caffemodel", 11, maker="opencv")),
    ("OpenCV 4.14 computes the same with --names torch and fold", lambda w: forward(w, "forward_opencv", ".npz", ".caffemodel", 24)),
    ("OpenCV 4.14 computes what TensorFlow would, --net --rgb --layout hwio --fc-from", keras),
    ("MXNet 1.9.1 computes the same with --names torch and fold", lambda w: forward(w, "forward_mxnet", ".params", ".params", 25)),
    ("NeoML 2.0.210 writes", lambda w: theirs(w, "neoml", "neoml", ".neoml", 12)),
    ("NeoML 2.0.210 reads", lambda w: ours(w, "neoml", "neoml", ".neoml", 13, ONLY="float32 int32", AXES="7", TENSORS="1", NAME="@0")),
    ("safetensors writes", lambda w: theirs(w, "arrays", "safetensors", ".safetensors", 14, FORMAT="safetensors")),
    ("safetensors reads", lambda w: ours(w, "arrays", "safetensors", ".safetensors", 15)),
    ("NumPy reads", lambda w: ours(w, "arrays", "npz", ".npz", 16, FORMAT="safetensors")),
    ("h5py writes", lambda w: theirs(w, "arrays", "hdf5", ".h5", 17, FORMAT="h5", ONLY=FLOATS)),
    ("h5py reads", lambda w: ours(w, "arrays", "hdf5", ".h5", 18)),
    ("h5py reads large groups", lambda w: ours(w, "arrays", "hdf5", ".h5", 23, ONLY=FLOATS, NAME="w%d", TENSORS="600")),
    ("h5py reads Caffe's form", lambda w: ours(w, "arrays", "hdf5", ".caffemodel.h5", 21, ONLY=FLOATS)),
    ("PyTorch 1.12 computes as Caffe's nets (OpenCV)", caffe_nets),
    ("PyTorch 1.12 computes as MXNet 1.9.1 and its nets", mxnet_nets),
    ("onnxruntime 1.32 and OpenCV 5 compute as Caffe's well-known nets (OpenCV 4.14)", lambda w: onnx_nets(w, "onnx_nets", ".caffemodel")),
    ("onnxruntime 1.32 and OpenCV 5 compute as MXNet 1.9.1 and its nets", lambda w: onnx_nets(w, "onnx_mxnet_nets", ".params")),
    ("onnxruntime 1.32 and OpenCV 5 find an SSD's boxes as a naive loop does", ssd),
    ("onnxruntime 1.32 and OpenCV 5 find what res10 and WeChat's nets find in OpenCV 4.14", lambda w: onnx_nets(w, "onnx_real", ".caffemodel")),
    ("PyTorch 2.15 and blob_io by DLPack, both ways (CPython 3.13)", lambda w: dlpack(w, "dlpack13", "torch", 26)),
    ("jax 0.12.0 and blob_io by DLPack, both ways (CPython 3.13)", lambda w: dlpack(w, "dlpack13", "jax", 27)),
    ("jax 0.10.2 and blob_io by DLPack, both ways (CPython 3.11)", lambda w: dlpack(w, "dlpack11", "jax", 28)),
    ("Ray converts with two workers, one killed", lambda w: batch(w, "ray")),
    ("Dask converts with two workers, one killed", lambda w: batch(w, "dask")),
    ("S3 (moto): few range requests for the headers of 500 MB", lambda w: batch(w, "s3")),
    ("Caffe reads HDF5, float and double", lambda w: ours(w, "caffe", "hdf5", ".caffemodel.h5", 22, ONLY=FLOATS)),
]


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--blob", required=True)
    parser.add_argument("--work", required=True)
    parser.add_argument("--wheels", required=True)
    parser.add_argument("--only", default="")
    arguments = parser.parse_args()
    os.makedirs(arguments.work, exist_ok=True)
    if shutil.which("pyenv"):  # its programs are found only in the versions that are switched on
        os.environ["PYENV_VERSION"] = ":".join(call(["pyenv", "versions", "--bare"]).split())
    work, failed = Work(arguments.blob, arguments.work, arguments.wheels), 0
    print("# Interop, %s, %s\n" % (datetime.date.today(), " ".join((platform.system(), platform.machine()))))
    print("%d seeded random files a row, each value compared.\n" % COUNT)
    print("| row | files | tensors | result |\n| --- | --- | --- | --- |")
    for title, row in ROWS:
        if arguments.only not in title:
            continue
        try:
            files, tensors, wrong = row(work)
            print("| %s | %d | %d | %s |" % (title, files, tensors, "equal" if not wrong else "%d DIFFER" % len(wrong)), flush=True)
            for line in wrong[:3]:
                print("  " + line, file=sys.stderr)
            failed += bool(wrong)
        except Absent as reason:
            print("| %s | - | - | not run: %s |" % (title, oneline(reason)), flush=True)
        except RuntimeError as reason:
            failed += 1
            print("| %s | - | - | FAILED: %s |" % (title, oneline(reason)), flush=True)
    return failed


if __name__ == "__main__":
    sys.exit(main())
