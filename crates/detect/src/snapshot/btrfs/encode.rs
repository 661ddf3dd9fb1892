//! Send streams for tests, from lines such as `rename o257-9-0 a`.
//!
//! Words are separated by spaces, so names in these tests have none; `/` alone is the root.

use super::crc::crc32c;

/// A stream of version 1 with a parent, with these commands and its end.
pub(super) fn stream(lines: &[&str]) -> Vec<u8> {
    let begin = command(2, &[snapshot(), path(15, "newer")].concat());
    [header(1), begin, commands(lines), command(21, &[])].concat()
}

pub(super) fn header(version: u32) -> Vec<u8> {
    [&b"btrfs-stream\0"[..], &version.to_le_bytes()].concat()
}

pub(super) fn snapshot() -> Vec<u8> {
    let number = |kind| attribute(kind, &7u64.to_le_bytes());
    let uuid = |kind| attribute(kind, &[kind as u8; 16]);
    [uuid(1), number(2), uuid(20), number(21)].concat()
}

pub(super) fn commands(lines: &[&str]) -> Vec<u8> {
    lines.iter().flat_map(|line| one(line)).collect()
}

fn one(line: &str) -> Vec<u8> {
    let words: Vec<&str> = line.split(' ').collect();
    let number =
        |kind, word: &str| attribute(kind, &word.parse::<u64>().expect("a number").to_le_bytes());
    let first = path(15, words[1]);
    let made = [first.clone(), number(3, "257")].concat();
    let (command_number, payload) = match words[0] {
        "mkfile" => (3, made),
        "mkdir" => (4, made),
        "mknod" => (5, [made, number(5, "420"), number(8, "7")].concat()),
        "mkfifo" => (6, made),
        "mksock" => (7, made),
        "symlink" => (8, [made, path(17, "target")].concat()),
        "rename" => (9, [first, path(16, words[2])].concat()),
        "link" => (10, [first, path(17, words[2])].concat()),
        "unlink" => (11, first),
        "rmdir" => (12, first),
        "xattr" => (
            13,
            [first, attribute(13, b"user.a"), attribute(14, b"b")].concat(),
        ),
        "write" => (
            15,
            [
                first,
                number(18, words[2]),
                attribute(19, &vec![0; words[3].parse().expect("a number")]),
            ]
            .concat(),
        ),
        "clone" => (
            16,
            [first, number(18, words[2]), number(24, words[3])].concat(),
        ),
        "truncate" => (17, [first, number(4, words[2])].concat()),
        "chmod" => (18, [first, number(5, "420")].concat()),
        "chown" => (19, first),
        "utimes" => (20, first),
        "update" => (
            22,
            [first, number(18, words[2]), number(4, words[3])].concat(),
        ),
        "fallocate" => (
            23,
            [first, number(18, words[2]), number(4, words[3])].concat(),
        ),
        "fileattr" => (24, first),
        "verity" => (26, first),
        other => panic!("no command {other}"),
    };
    command(command_number, &payload)
}

pub(super) fn path(kind: u16, text: &str) -> Vec<u8> {
    attribute(kind, text.trim_matches('/').as_bytes())
}

pub(super) fn attribute(kind: u16, value: &[u8]) -> Vec<u8> {
    let length = u16::try_from(value.len()).expect("short");
    [&kind.to_le_bytes()[..], &length.to_le_bytes(), value].concat()
}

pub(super) fn command(number: u16, payload: &[u8]) -> Vec<u8> {
    let length = u32::try_from(payload.len()).expect("short").to_le_bytes();
    let bare = [&length[..], &number.to_le_bytes(), &[0; 4], payload].concat();
    let checksum = crc32c(0, &bare).to_le_bytes();
    [&length[..], &number.to_le_bytes(), &checksum, payload].concat()
}
