"""Writes a small image to the file named, in the format of docker save or of OCI: a shell, and a second layer that changes the first."""

import hashlib, io, json, os, re, subprocess, sys, tarfile

SCRIPT = """cat() { while read -r line; do echo "$line"; done < "$1"; }
cat /greeting
while read -r key value _; do if [ "$key" = Uid: ]; then echo "$value"; fi; done < /proc/self/status
echo "$A $HOME"; pwd
echo x > own && echo wrote
[ -e /gone ] || echo gone
[ -e /etc/manta-escape ] && echo kept inside"""


def layer(entries):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as tar:
        for name, kind, content, mode, uid in entries:
            member = tarfile.TarInfo(name)
            member.type, member.mode, member.uid, member.gid = kind, mode, uid, uid
            if kind == tarfile.SYMTYPE:
                member.linkname, content = content, b""
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return buffer.getvalue()


def file(name, content, mode=0o644, uid=0):
    return (name, tarfile.REGTYPE, content, mode, uid)


def copied(path):
    return file(path.lstrip("/"), open(path, "rb").read(), 0o755)


shell = os.path.realpath("/bin/sh")
libraries = re.findall(r"(/\S+) \(0x", subprocess.run(["ldd", shell], capture_output=True, text=True).stdout)
passwd = b"root:x:0:0::/root:/bin/sh\napp:x:1000:1000::/home/app:/bin/sh\n"
lower = [copied(path) for path in [shell, *libraries]] + [
    file("etc/passwd", passwd),
    file("gone", b"x"),
    ("evil", tarfile.SYMTYPE, "/etc", 0o777, 0),
    ("home/app", tarfile.DIRTYPE, b"", 0o755, 1000),
]
upper = [file(".wh.gone", b""), file("greeting", b"hello from the image\n"), file("evil/manta-escape", b"x")]
config = {"User": "app", "Env": ["PATH=/bin", "A=b"], "Cmd": [shell, "-c", SCRIPT], "WorkingDir": "/home/app"}
blobs = [layer(lower), layer(upper), json.dumps({"config": config}).encode()]


def docker_save():
    yield from zip(["0.tar", "1.tar", "config.json"], blobs)
    yield "manifest.json", json.dumps([{"Config": "config.json", "Layers": ["0.tar", "1.tar"]}]).encode()


def oci():
    def descriptor(blob):
        return {"digest": "sha256:" + hashlib.sha256(blob).hexdigest(), "size": len(blob)}

    layers = [descriptor(blob) for blob in blobs[:2]]
    manifest = json.dumps({"schemaVersion": 2, "config": descriptor(blobs[2]), "layers": layers}).encode()
    foreign = {"digest": "sha256:" + "0" * 64, "size": 0, "platform": {"architecture": "another", "os": "linux"}}
    yield "oci-layout", b'{"imageLayoutVersion": "1.0.0"}'
    yield "index.json", json.dumps({"schemaVersion": 2, "manifests": [foreign, descriptor(manifest)]}).encode()
    for blob in [*blobs, manifest]:
        yield "blobs/sha256/" + hashlib.sha256(blob).hexdigest(), blob


with tarfile.open(sys.argv[1], "w") as archive:
    for name, content in {"docker-save": docker_save, "oci": oci}[sys.argv[2]]():
        member = tarfile.TarInfo(name)
        member.size = len(content)
        archive.addfile(member, io.BytesIO(content))
