"""Clients of a gateway that break its rules.

    hostile.py SOCKET ask MARK   asks for the job of another user; prints a line for each answer
    hostile.py SOCKET flood      holds many connections until the end of the standard input
    hostile.py SOCKET connect    prints whether the socket lets this user in

A message is its length (4 bytes, little-endian) and a value of postcard: the number of a kind, and each text behind its length.
"""

import resource
import socket
import sys

PREPARE, CONFIRM, ABANDON, JOBS = range(4)
CONNECTIONS = 1500


def text(value):
    data = value.encode()
    return bytes([len(data)]) + data


def message(kind, *texts):
    body = bytes([kind]) + b"".join(text(value) for value in texts)
    return len(body).to_bytes(4, "little") + body


def connect():
    stream = socket.socket(socket.AF_UNIX)
    stream.settimeout(60)
    stream.connect(sys.argv[1])
    return stream


def answer(data):
    """What the gateway answers to a message of which no more comes."""
    with connect() as stream:
        try:
            stream.sendall(data)
            stream.shutdown(socket.SHUT_WR)
            parts = []
            while part := stream.recv(1 << 16):
                parts.append(part)
        except OSError:
            return b"closed"
    return b"".join(parts)[4:] or b"closed"


def ask(mark):
    asked = {
        "confirm": message(CONFIRM, mark, "1"),
        "abandon": message(ABANDON, mark),
        "jobs": message(JOBS),
        "empty": (0).to_bytes(4, "little"),
        "huge": b"\xff\xff\xff\xff" + b"x" * 4096,
        "large": (32 << 20).to_bytes(4, "little") + b"\0" * (1 << 20),
        "half": message(JOBS)[:3],
        "cut": message(CONFIRM, mark, "1")[:-3],
        "unknown": message(200),
        "random": b"\x40\0\0\0" + bytes(range(64)),
    }
    for name, data in asked.items():
        print(name, answer(data))


def flood():
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    begins = [b"", message(JOBS)[:2], (1 << 20).to_bytes(4, "little") + b"slow"]
    held = []
    for number in range(CONNECTIONS):
        stream = connect()
        held.append(stream)
        try:
            stream.sendall(begins[number % len(begins)])
        except OSError:
            pass
    print("ready", flush=True)
    sys.stdin.buffer.read()


def try_connect():
    try:
        connect()
    except OSError:
        print("refused")
    else:
        print("connected")


if sys.argv[2] == "ask":
    ask(sys.argv[3])
elif sys.argv[2] == "flood":
    flood()
else:
    try_connect()
