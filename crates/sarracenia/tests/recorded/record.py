#!/usr/bin/env python3
"""Records the messages of a real sr3 as messages.json, beside this file.

Needs: pip install 'metpx-sr3[amqp]'. Each message is made by the classes by which `sr3_post` and
`sr3 watch` make theirs, from entries of a scratch folder, and put in the form in which it would go
to a broker. No broker is needed.
"""
import copy
import json
import os
import shutil
import sys
import tempfile

home = tempfile.mkdtemp(prefix="driftless-record-")
os.environ["HOME"] = home
os.environ["XDG_CONFIG_HOME"] = os.path.join(home, ".config")
os.environ["XDG_CACHE_HOME"] = os.path.join(home, ".cache")
# Where it is recorded makes no difference to the messages.
TREE = "/tmp/driftless-record-tree"
BROKER = "amqp://tfeed:pw@localhost/"


def options(lines):
    import sarracenia.config
    folder = os.path.join(home, ".config", "sr3", "post")
    os.makedirs(folder, exist_ok=True)
    with open(os.path.join(home, ".config", "sr3", "credentials.conf"), "w") as file:
        file.write(BROKER + "\n")
    with open(os.path.join(folder, "rec.conf"), "w") as file:
        file.write("post_broker amqp://tfeed@localhost/\npost_exchange xs_tfeed\n" + lines)
    return sarracenia.config.one_config("post", "rec", "foreground")


def wire(message, o, version):
    """As it goes to a broker: content type, topic, headers, body."""
    from sarracenia.postformat import PostFormat
    message = copy.deepcopy(message)
    for key in list(message.get("_deleteOnPost", [])) + ["_deleteOnPost"]:
        message.pop(key, None)
    o = o.dictify() if hasattr(o, "dictify") else dict(vars(o))
    o["publisher_index"] = 0
    body, headers, content_type = PostFormat.exportAny(message, version, ["v03"], o)
    topic = ".".join(headers.pop("topic")).replace("#", "%23").replace("*", "%22")
    text = {key: value for key, value in headers.items() if isinstance(value, str)}
    return {"content_type": content_type, "topic": topic, "headers": text, "body": body}


def entry(name, content=b"12345"):
    path = os.path.join(os.fsencode(TREE), name)
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb") as file:
        file.write(content)
    os.chmod(path, 0o640)
    os.utime(path, ns=(1769854272123456789, 1769854272123456789))
    return os.fsdecode(path)


def record(base_dir):
    from sarracenia.flowcb.gather.file import File
    import sarracenia
    lines = "post_baseUrl file:" + (TREE if base_dir else "") + "\npath " + TREE + "\n"
    o = options(lines + ("post_baseDir " + TREE + "\n" if base_dir else ""))
    o.fileAgeMin = 0
    gather = File(o)
    recorded = []

    def keep(what, messages):
        for message in messages:
            for version in ["v03", "v02"]:
                try:
                    sent = wire(message, o, version)
                    # Bytes that are no UTF-8 are lone surrogates in Python, which version 02
                    # cannot send.
                    for text in [sent["topic"], sent["body"], *sent["headers"].values()]:
                        text.encode("utf-8")
                except Exception as why:
                    print("not recorded:", what, version, repr(why), file=sys.stderr)
                    continue
                recorded.append({"what": what, "base_dir": base_dir, **sent})

    def stat(path):
        return sarracenia.stat(path)

    for what, name in [("file", b"a/b c/x#1.txt"), ("file in the root", b"y"),
                       ("file with a star", b"d*/#e/ f\xc3\xbc"), ("not UTF-8", b"a/n\xff.txt")]:
        path = entry(name)
        keep(what, gather.post1file(path, stat(path)))
    os.makedirs(TREE + "/dir/below", exist_ok=True)
    keep("directory", gather.post1file(TREE + "/dir/below", stat(TREE + "/dir/below")))
    os.symlink("../target", TREE + "/dir/link")
    keep("link", gather.post1file(TREE + "/dir/link", None))
    keep("removed", gather.post1file(TREE + "/gone/file", None))
    keep("removed directory", gather.post1file(TREE + "/gone/dir", None, is_directory=True))
    moved = entry(b"new/name")
    keep("renamed", gather.post1move(TREE + "/old/name", moved))
    os.symlink("t", TREE + "/new/link")
    keep("renamed link", gather.post1move(TREE + "/old/link", TREE + "/new/link"))
    entry(b"newdir/one")
    keep("renamed directory", gather.post1move(TREE + "/olddir", TREE + "/newdir"))
    shutil.rmtree(TREE)
    return recorded


def main():
    shutil.rmtree(TREE, ignore_errors=True)
    try:
        all_of_them = record(True) + record(False)
    finally:
        shutil.rmtree(home, ignore_errors=True)
    target = os.path.join(os.path.dirname(os.path.abspath(__file__)), "messages.json")
    with open(target, "w") as file:
        json.dump(all_of_them, file, indent=1, sort_keys=True)
        file.write("\n")
    print(len(all_of_them), "messages")


main()
