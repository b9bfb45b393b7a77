"""Time and peak memory of listing and loading one .caffemodel with what people use today. Each case is a process of its own.

    cargo bench -p blob-benches --bench io -- --make vgg16.caffemodel
    python3 -m venv v && v/bin/pip install numpy protobuf 'opencv-python-headless<5'
    v/bin/python benches/peers/files.py vgg16.caffemodel
"""
import json, os, resource, statistics, subprocess, sys, time

CASES = ["read", "list upb", "load upb", "list opencv4"]


def messages():
    """The handful of Caffe messages needed, built without a protoc step."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory
    f = descriptor_pb2.FileDescriptorProto(name="mini.proto", package="caffe", syntax="proto2")
    F = descriptor_pb2.FieldDescriptorProto

    def message(name, *fields):
        m = f.message_type.add(name=name)
        for number, label, kind, field_name, extra in fields:
            d = m.field.add(name=field_name, number=number, label=label, type=kind)
            if isinstance(extra, str):
                d.type_name = extra
            elif extra:
                d.options.packed = True
    R, O = F.LABEL_REPEATED, F.LABEL_OPTIONAL
    message("BlobShape", (1, R, F.TYPE_INT64, "dim", True))
    message("BlobProto", (5, R, F.TYPE_FLOAT, "data", True), (7, O, F.TYPE_MESSAGE, "shape", ".caffe.BlobShape"))
    message("LayerParameter", (1, O, F.TYPE_STRING, "name", None), (2, O, F.TYPE_STRING, "type", None),
            (7, R, F.TYPE_MESSAGE, "blobs", ".caffe.BlobProto"))
    message("NetParameter", (1, O, F.TYPE_STRING, "name", None), (100, R, F.TYPE_MESSAGE, "layer", ".caffe.LayerParameter"))
    pool = descriptor_pool.DescriptorPool()
    pool.Add(f)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("caffe.NetParameter"))


def run(case, path):
    if case == "read":
        buffer = bytearray(os.path.getsize(path))
        start = time.perf_counter()
        with open(path, "rb", buffering=0) as f:
            view, done = memoryview(buffer), 0
            while done < len(buffer):
                done += f.readinto(view[done:])
    elif case.endswith("upb"):
        net = messages()()
        start = time.perf_counter()
        net.ParseFromString(open(path, "rb").read())
        rows = [(l.name, [list(b.shape.dim) for b in l.blobs]) for l in net.layer]
        assert rows
        if case.startswith("load"):
            import numpy as np
            arrays = [np.array(b.data, dtype=np.float32) for l in net.layer for b in l.blobs]
            assert arrays
    else:
        import cv2, tempfile
        proto = tempfile.NamedTemporaryFile("w", suffix=".prototxt", delete=False)
        proto.write('name: "x"\ninput: "data" input_shape { dim: 1 dim: 3 dim: 4 dim: 4 }\nlayer { name: "id" type: "Split" bottom: "data" top: "out" }\n')
        proto.close()
        start = time.perf_counter()
        cv2.dnn.readNetFromCaffe(proto.name, path)
    seconds = time.perf_counter() - start
    print(json.dumps({"s": seconds, "mib": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}))


def main(path, rounds=5):
    open(path, "rb").read()
    for case in CASES:
        rows = []
        for _ in range(rounds):
            p = subprocess.run([sys.executable, __file__, path, case], capture_output=True, text=True)
            if p.returncode:
                break
            rows.append(json.loads(p.stdout.splitlines()[-1]))
        if not rows:
            print(f"{case:14} failed: {p.stderr.strip().splitlines()[-1][:120]}")
            continue
        print(f"{case:14} {statistics.median(r['s'] for r in rows) * 1e3:9.1f} ms   peak {max(r['mib'] for r in rows):8.1f} MiB")


if __name__ == "__main__":
    run(sys.argv[2], sys.argv[1]) if len(sys.argv) > 2 else main(sys.argv[1])
