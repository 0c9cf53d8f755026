"""Checks local mode on a machine with an NVIDIA GPU: `python3 tests/gpu/check.py path/to/manta`.

Needs nothing but the binary, Python and the driver. Three checks, one line each: a pod that asks for a GPU sees exactly
the GPUs that it was given and computes on them, a pod that asks for none sees none, and pods never share a GPU.
"""

import base64
import json
import os
import pathlib
import re
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request

TIMEOUT = 120

# Runs in the pods. Every number is checked by the driver's own result code.
PROGRAM = r"""
import ctypes, glob, json, os
result = {
    "nodes": sorted(glob.glob("/dev/nvidia[0-9]*")),
    "variable": os.environ.get("CUDA_VISIBLE_DEVICES"),
    "listed": len(glob.glob("/proc/driver/nvidia/gpus/*")),
    "gpus": 0, "sum": None, "error": None,
}
def must(name, code):
    if code: raise RuntimeError(f"{name} failed with {code}")
try:
    cuda = ctypes.CDLL("libcuda.so.1")
    must("cuInit", cuda.cuInit(0))
    count = ctypes.c_int()
    must("cuDeviceGetCount", cuda.cuDeviceGetCount(ctypes.byref(count)))
    result["gpus"] = count.value
    words, total = 1 << 20, 0
    for number in range(count.value):
        device, context, memory = ctypes.c_int(), ctypes.c_void_p(), ctypes.c_uint64()
        must("cuDeviceGet", cuda.cuDeviceGet(ctypes.byref(device), number))
        must("cuCtxCreate", cuda.cuCtxCreate_v2(ctypes.byref(context), 0, device))
        must("cuMemAlloc", cuda.cuMemAlloc_v2(ctypes.byref(memory), ctypes.c_size_t(4 * words)))
        must("cuMemsetD32", cuda.cuMemsetD32_v2(memory, ctypes.c_uint(7), ctypes.c_size_t(words)))
        back = (ctypes.c_uint32 * words)()
        must("cuMemcpyDtoH", cuda.cuMemcpyDtoH_v2(back, memory, ctypes.c_size_t(4 * words)))
        must("cuMemFree", cuda.cuMemFree_v2(memory))
        must("cuCtxDestroy", cuda.cuCtxDestroy_v2(context))
        total += sum(back)
    result["sum"] = total
except (OSError, RuntimeError) as error:
    result["error"] = str(error)
print(json.dumps(result), flush=True)
if os.environ.get("HOLD"):
    import signal
    signal.sigwait({signal.SIGTERM})
"""

# What the program adds up to on each GPU.
SUM = 7 * (1 << 20)


class Manta:
    """A running `manta up` and a client of its API server."""

    def __init__(self, binary, folder, gpus="all"):
        command = [binary, "up", "--in-memory", "--port", "0", "--state", str(folder), "--gpus", gpus]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
        self.lines = []
        threading.Thread(target=self._read, daemon=True).start()
        wait("manta up", lambda: any("export KUBECONFIG" in line for line in self.lines) or self._ended())
        text = (folder / "kubeconfig").read_text()
        field = lambda name: re.search(rf"{name}: (\S+)", text).group(1)
        self.server, self.token = field("server"), field("token")
        authority = base64.b64decode(field("certificate-authority-data")).decode()
        self.tls = ssl.create_default_context(cadata=authority)

    def _read(self):
        for line in self.process.stdout:
            self.lines.append(line.rstrip())

    def _ended(self):
        if self.process.poll() is not None:
            sys.exit("manta up ended:\n" + "\n".join(self.lines))

    def call(self, method, path, body=None):
        data = None if body is None else json.dumps(body).encode()
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        request = urllib.request.Request(self.server + path, data, headers, method=method)
        with urllib.request.urlopen(request, context=self.tls, timeout=30) as reply:
            return reply.read().decode()

    def get(self, path):
        return json.loads(self.call("GET", path))

    def create(self, name, gpus, hold=False):
        container = {"name": "c", "image": "python", "command": ["python3", "-c", PROGRAM]}
        if gpus:
            container["resources"] = {"limits": {"nvidia.com/gpu": str(gpus)}}
        if hold:
            container["env"] = [{"name": "HOLD", "value": "1"}]
        pod = {"metadata": {"name": name}, "spec": {"restartPolicy": "Never", "containers": [container]}}
        self.call("POST", PODS, pod)

    def report(self, name):
        """Waits for the line that the pod's program prints."""

        def read():
            try:
                lines = self.call("GET", f"{PODS}/{name}/log").splitlines()
            except urllib.error.HTTPError:
                return None
            return json.loads(lines[-1]) if lines else None

        return wait(f"the report of pod {name}", read)

    def unschedulable(self, name):
        def read():
            conditions = self.get(f"{PODS}/{name}").get("status", {}).get("conditions", [])
            return next((c.get("message") for c in conditions if c["type"] == "PodScheduled" and c["status"] == "False"), None)

        return wait(f"the verdict on pod {name}", read)

    def stop(self):
        self.process.terminate()
        self.process.wait(TIMEOUT)


PODS = "/api/v1/namespaces/default/pods"


def wait(what, ask):
    end = time.monotonic() + TIMEOUT
    while time.monotonic() < end:
        answer = ask()
        if answer:
            return answer
        time.sleep(0.1)
    sys.exit(f"FAILED: no {what} within {TIMEOUT} s")


def check(name, facts, report):
    wrong = [text for text, holds in facts.items() if not holds]
    if wrong:
        sys.exit(f"FAILED: {name}: not true: {'; '.join(wrong)}\n{json.dumps(report, indent=2)}")
    print(f"ok: {name}: {json.dumps(report)}", flush=True)


def main():
    binary = os.path.abspath(sys.argv[1])
    with tempfile.TemporaryDirectory() as parent:
        folder = pathlib.Path(parent) / "state"
        manta = Manta(binary, folder)
        try:
            run(manta)
        except SystemExit:
            print("\n".join(manta.lines), file=sys.stderr)
            raise
        finally:
            manta.stop()


def run(manta):
    # Without namespaces the device nodes of the machine cannot be hidden, and only the variables keep pods apart.
    reduced = any("REDUCED ISOLATION" in line for line in manta.lines)
    node = manta.get("/api/v1/nodes/local")["status"]["capacity"]
    total = int(node.get("nvidia.com/gpu", 0))
    if not total:
        sys.exit("FAILED: no NVIDIA GPU was found on this machine")
    print(f"{total} GPU(s) offered, {'reduced' if reduced else 'full'} isolation", flush=True)

    manta.create("with-gpu", 1, hold=True)
    report = manta.report("with-gpu")
    facts = {
        "one GPU": report["gpus"] == 1,
        "the sum of what was written": report["sum"] == SUM,
        "one device node": reduced or len(report["nodes"]) == 1,
        "one GPU in the driver's list": reduced or report["listed"] <= 1,
    }
    check("a pod with a GPU sees it and computes on it", facts, report)

    manta.create("without-gpu", 0)
    report = manta.report("without-gpu")
    facts = {"no GPU": report["gpus"] == 0, "no device node": reduced or not report["nodes"], "an empty variable": report["variable"] == ""}
    check("a pod without a GPU sees none", facts, report)

    manta.create("too-many", total)
    message = manta.unschedulable("too-many")
    check("no two pods share a GPU", {"it waits": "Insufficient nvidia.com/gpu" in message}, message)
    manta.call("DELETE", f"{PODS}/with-gpu")
    report = manta.report("too-many")
    check("a pod gets the GPUs that another gave back", {"all GPUs": report["gpus"] == total, "the sum": report["sum"] == total * SUM}, report)


if __name__ == "__main__":
    main()
