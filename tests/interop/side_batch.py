"""The recipes of docs/python/batch.md as they stand there, on two workers of which one is killed in the middle; and a file in S3, for whose
headers few ranges are asked.

`side_batch.py ray|dask|s3 FOLDER` prints files, tensors, and what is wrong, as JSON.
"""
import glob
import json
import os
import re
import signal
import sys
import threading
import time

import blob_io
import numpy as np

PAGE = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "docs", "python", "batch.md")
COUNT, TENSORS, EXTENT = 120, 8, 65536


def code(fence, word):
    """The block of the page with this fence that has this word."""
    blocks = re.findall(r"^```%s\n(.*?)^```" % fence, open(PAGE, encoding="utf-8").read(), re.M | re.S)
    (found,) = [block for block in blocks if word in block]
    return found


def sources(folder):
    """Writes the sources and the list of jobs; returns the jobs."""
    os.makedirs(os.path.join(folder, "in"))
    os.makedirs(os.path.join(folder, "out"))
    values, jobs = np.random.default_rng(41).random((TENSORS, EXTENT), np.float32), []
    for n in range(COUNT):
        values[0, 0] = n
        source = os.path.join(folder, "in", "%03d.npz" % n)
        blob_io.save_file({"w%d" % i: values[i] for i in range(TENSORS)}, source)
        target = {"path": os.path.join(folder, "out", "%03d.safetensors" % n), "format": "safetensors"}
        jobs.append({"sources": [{"path": source}], "target": target})
    with open(os.path.join(folder, "jobs.ndjson"), "w", encoding="utf-8") as file:
        file.writelines(json.dumps(job) + "\n" for job in jobs)
    return jobs


def written(folder):
    return {name: open(os.path.join(folder, name), "rb").read() for name in sorted(os.listdir(folder))}


class Killer(threading.Thread):
    """Kills the first worker that is found once some outputs are there, and not yet all."""

    def __init__(self, folder, workers):
        super().__init__(daemon=True)
        self.folder, self.workers, self.killed_at = folder, workers, None

    def run(self):
        while self.killed_at is None:
            count = len(glob.glob(os.path.join(self.folder, "out", "*.safetensors")))
            if count >= COUNT:
                return
            if count >= 8:
                for pid in self.workers():
                    os.kill(pid, signal.SIGKILL)
                    self.killed_at = count
                    return
            time.sleep(0.001)


def ray_workers():
    """The processes that run tasks of Ray's now; an idle one calls itself ray::IDLE."""
    for place in glob.glob("/proc/[0-9]*/cmdline"):
        try:
            name = open(place).read()
        except OSError:
            continue
        if name.startswith("ray::") and "Map" in name:
            yield int(place.split("/")[2])


def on_workers(engine, folder):
    jobs = sources(folder)
    os.chdir(folder)
    names = {}
    exec(compile(code("python", "ThreadPoolExecutor").split("with ThreadPoolExecutor")[0], PAGE, "exec"), names)
    assert names["jobs"] == jobs
    lines = code("py", "ray.data" if engine == "ray" else "dask.bag")
    if engine == "ray":
        import ray

        ray.init(num_cpus=2, include_dashboard=False, logging_level="ERROR")
        workers = ray_workers
    else:
        import distributed

        cluster = distributed.LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
        client = distributed.Client(cluster)
        workers = lambda: [worker.pid for worker in cluster.workers.values()]
    killer = Killer(folder, workers)
    killer.start()
    exec(compile(lines, PAGE, "exec"), names)
    killer.join()
    wrong = [] if killer.killed_at is not None else ["no worker was killed: all was done before"]
    first = written(os.path.join(folder, "out"))
    receipts = [blob_io.convert(job["sources"][0]["path"], job["target"]["path"], recipe=job, if_exists="done") for job in jobs]
    wrong += [] if all(receipt.done for receipt in receipts) else ["not all jobs were done"]
    for job in jobs:
        job["target"]["path"] = job["target"]["path"].replace("/out/", "/alone/")
    os.makedirs(os.path.join(folder, "alone"))
    for job in jobs:
        blob_io.convert(job["sources"][0]["path"], job["target"]["path"], recipe=job, if_exists="done")
    wrong += [] if first == written(os.path.join(folder, "alone")) else ["the folder is not the one of an undisturbed run"]
    if engine == "ray":
        ray.shutdown()
    else:
        client.close()
        cluster.close()
    return {"files": len(first), "tensors": COUNT * TENSORS, "wrong": wrong, "killed_at": killer.killed_at}


class Counted:
    """A server's application that keeps what was read."""

    def __init__(self, application):
        self.application, self.reads = application, []

    def __call__(self, environment, start):
        if environment["REQUEST_METHOD"] == "GET" and environment.get("HTTP_RANGE"):
            self.reads.append(environment["HTTP_RANGE"])
        return self.application(environment, start)


def regions(opened, length):
    """How many stretches of a file are no values: a reader that skips the values needs as many requests."""
    edges = [0]
    for offset, nbytes in sorted((tensor.offset, tensor.nbytes) for tensor in opened.values()):
        edges += [offset, offset + nbytes]
    edges.append(length)
    return sum(begin < end for begin, end in zip(edges[::2], edges[1::2]))


def from_s3(folder):
    """500 MB in S3: how many ranges the headers cost, and one tensor."""
    import fsspec
    from moto.moto_server.werkzeug_app import DomainDispatcherApplication, create_backend_app
    from werkzeug.serving import make_server

    counted = Counted(DomainDispatcherApplication(create_backend_app))
    server = make_server("127.0.0.1", 0, counted, threaded=True)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    os.environ["AWS_DEFAULT_REGION"] = "us-east-1"
    endpoint = {"endpoint_url": "http://127.0.0.1:%d" % server.server_port}
    storage = {"key": "key", "secret": "secret", "client_kwargs": endpoint}
    fsspec.config.conf["s3"] = storage
    files = fsspec.filesystem("s3")
    files.mkdir("bucket")
    arrays = {"layer%02d/0" % n: np.full((1250, 2500), n, np.float32) for n in range(40)}
    wrong, tensors, ranges = [], 0, {}
    for format in ["safetensors", "npz", "caffemodel", "params"]:
        path = os.path.join(folder, "net." + format)
        blob_io.save_file(arrays, path)
        assert os.path.getsize(path) >= 500e6
        files.put(path, "bucket/net." + format)
        os.remove(path)
        with fsspec.open("s3://bucket/net." + format, default_cache_type="none") as remote:
            counted.reads.clear()
            opened = blob_io.open(remote)
            names = opened.keys()
            ranges[format] = len(counted.reads)
            most = regions(opened, remote.size)
            value = opened[names[7]].numpy()
        tensors += len(names)
        if len(names) != len(arrays) or (value != 7).any() or value.size != arrays["layer07/0"].size:
            wrong.append("%s: other tensors than were written" % format)
        if format == "caffemodel":
            os.chdir(folder)
            exec(compile(code("py", "fsspec"), PAGE, "exec"), {"blob_io": blob_io})
            wrong += [] if blob_io.verify("net.safetensors").ok else ["the page's lines have written something else"]
        if ranges[format] > most:
            wrong.append("%s: %d range requests for the headers, at most %d" % (format, ranges[format], most))
        files.rm("bucket/net." + format)
    server.shutdown()
    return {"files": len(ranges), "tensors": tensors, "wrong": wrong, "ranges": ranges}


if __name__ == "__main__":
    engine, folder = sys.argv[1:]
    print(json.dumps(from_s3(folder) if engine == "s3" else on_workers(engine, os.path.abspath(folder))))
