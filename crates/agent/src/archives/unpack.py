"""Unpacks the image on standard input into a directory, and prints its configuration as JSON.

Runs in a container of its own. It changes its root to the directory before it writes anything, so that no link of the
image leads elsewhere.
"""

import bz2, gzip, json, lzma, os, platform, shutil, stat, sys, tarfile, zlib  # noqa: all before the root changes

ARCHITECTURE = {"x86_64": "amd64", "aarch64": "arm64"}.get(platform.machine(), platform.machine())
tarfile.TarFile.extraction_filter = staticmethod(lambda member, path: member)

outer = tarfile.open(fileobj=open(0, "rb", closefd=False))
members = {os.path.normpath(member.name): member for member in outer}


def read(name):
    member = members.get(os.path.normpath(name))
    if member is None:
        sys.exit(f"the archive has no {name}")
    return outer.extractfile(member)


def blob(digest):
    return read("blobs/" + digest.replace(":", "/"))


def image():
    """Returns the configuration and the layers, the lowest first."""
    if "manifest.json" in members:
        images = json.load(read("manifest.json"))
        if len(images) != 1:
            sys.exit(f"the archive holds {len(images)} images; save one only")
        return json.load(read(images[0]["Config"])), [read(layer) for layer in images[0]["Layers"]]
    if "index.json" not in members:
        sys.exit("this is neither an OCI archive nor one of docker save or podman save")
    found = json.load(read("index.json"))
    while "manifests" in found:
        fits = [m for m in found["manifests"] if m.get("platform", {}).get("architecture", ARCHITECTURE) == ARCHITECTURE]
        if not fits:
            sys.exit(f"the archive has no image for {ARCHITECTURE}")
        found = json.load(blob(fits[0]["digest"]))
    return json.load(blob(found["config"]["digest"])), [blob(layer["digest"]) for layer in found["layers"]]


def remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.unlink(path)


def unpack(stream):
    layer = tarfile.open(fileobj=stream)
    entries = []
    for member in layer:
        member.name = os.path.normpath("/" + member.name).lstrip("/")
        folder, name = os.path.split("/" + member.name)
        if name == ".wh..wh..opq":
            for inside in os.listdir(folder) if os.path.isdir(folder) else []:
                remove(os.path.join(folder, inside))
        elif name.startswith(".wh."):
            remove(os.path.join(folder, name[len(".wh."):]))
        elif member.name and not (member.ischr() or member.isblk() or member.isfifo()):
            entries.append(member)
    for member in entries:
        path = "/" + member.name
        if not (member.isdir() and os.path.isdir(path)):
            remove(path)
        layer.extract(member, "/", numeric_owner=True)


def account(file, key):
    """Returns the fields of a user or group, by name or number."""
    try:
        lines = open(file).read().splitlines()
    except OSError:
        return None
    rows = [line.split(":") for line in lines]
    return next((row for row in rows if len(row) > 2 and key in (row[0], row[2])), None)


def describe(config):
    user, _, group = (config.get("User") or "0").partition(":")
    row = account("/etc/passwd", user)
    if row is None and not user.isdigit():
        sys.exit(f"the image runs as {user}, who is not in its /etc/passwd")
    uid = int(row[2]) if row else int(user)
    group_row = account("/etc/group", group) if group else None
    gid = int(group_row[2]) if group_row else int(group) if group.isdigit() else int(row[3]) if row else 0
    env = [tuple(text.split("=", 1)) for text in config.get("Env") or [] if "=" in text]
    if row and len(row) > 5 and "HOME" not in dict(env):
        env.append(("HOME", row[5] or "/"))
    return {
        "env": env, "entrypoint": config.get("Entrypoint") or [], "cmd": config.get("Cmd") or [],
        "cwd": config.get("WorkingDir") or "/", "uid": uid, "gid": gid,
    }


config, layers = image()
os.umask(0o022)
os.chroot(sys.argv[1])
os.chdir("/")
for one in layers:
    unpack(one)
print(json.dumps(describe(config.get("config") or {})))
