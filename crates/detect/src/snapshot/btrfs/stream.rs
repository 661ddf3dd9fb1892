//! Reads a send stream command by command.
//!
//! ```text
//! header : "btrfs-stream\0"  u32 version
//! command: u32 length of the payload  u16 number  u32 checksum  payload
//! ```
//!
//! The checksum is over all of the command, with zeros where it stands itself. Source:
//! fs/btrfs/send.h (`struct btrfs_stream_header`, `struct btrfs_cmd_header`).

use super::command::{Command, END};
use super::crc::crc32c;
use super::fault::{StreamError, StreamFault};
use std::io::{self, ErrorKind, Read};

const MAGIC: &[u8; 13] = b"btrfs-stream\0";
const HEADER_BYTES: usize = MAGIC.len() + 4;
const COMMAND_HEADER_BYTES: usize = 10;
/// The kernel makes no command over 192 KiB: 16 KiB and an extent of 128 KiB, rounded up to pages
/// of 64 KiB (`BTRFS_SEND_BUF_SIZE_V2`).
pub(super) const COMMAND_BYTES_MAX: u32 = 256 << 10;

/// The commands of a stream, in order; ends after its end command, and after its first error. Reads
/// nothing behind the end.
#[derive(Debug)]
pub struct Stream<R> {
    reader: R,
    version: u32,
    /// Where the last command begins, and where it ends.
    begin: u64,
    end: u64,
    payload: Vec<u8>,
    is_over: bool,
}

impl<R: Read> Stream<R> {
    /// Reads the header. Fails if it is not that of a stream of version 1, 2 or 3.
    pub fn new(mut reader: R) -> Result<Self, StreamError> {
        let mut header = [0; HEADER_BYTES];
        read_whole(&mut reader, &mut header).map_err(|fault| fault.at(0))?;
        let (magic, number) = header.split_at(MAGIC.len());
        let version = u32::from_le_bytes(number.try_into().expect("four bytes"));
        if magic != MAGIC {
            return Err(StreamFault::Magic.at(0));
        }
        if !(1..=3).contains(&version) {
            return Err(StreamFault::Version(version).at(0));
        }
        Ok(Stream {
            reader,
            version,
            begin: HEADER_BYTES as u64,
            end: HEADER_BYTES as u64,
            payload: Vec::new(),
            is_over: false,
        })
    }

    /// The version of the stream.
    pub fn version(&self) -> u32 {
        self.version
    }

    /// Where the last command began, in bytes from the start of the stream.
    pub fn offset(&self) -> u64 {
        self.begin
    }

    fn read(&mut self) -> Result<Option<Command>, StreamFault> {
        self.begin = self.end;
        let mut header = [0; COMMAND_HEADER_BYTES];
        read_whole(&mut self.reader, &mut header)?;
        let length = u32::from_le_bytes([header[0], header[1], header[2], header[3]]);
        let number = u16::from_le_bytes([header[4], header[5]]);
        let found = u32::from_le_bytes([header[6], header[7], header[8], header[9]]);
        if length > COMMAND_BYTES_MAX {
            return Err(StreamFault::TooLong(length, COMMAND_BYTES_MAX));
        }
        self.payload.resize(length as usize, 0);
        read_whole(&mut self.reader, &mut self.payload)?;
        self.end += COMMAND_HEADER_BYTES as u64 + u64::from(length);
        header[6..].fill(0);
        let computed = crc32c(crc32c(0, &header), &self.payload);
        if found != computed {
            return Err(StreamFault::Checksum { found, computed });
        }
        if number == END {
            return Ok(None);
        }
        Command::parse(number, &self.payload, self.version).map(Some)
    }
}

impl<R: Read> Iterator for Stream<R> {
    type Item = Result<Command, StreamError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let read = self.read();
        self.is_over = !matches!(read, Ok(Some(_)));
        let begin = self.begin;
        read.map_err(|fault| fault.at(begin)).transpose()
    }
}

fn read_whole(reader: &mut impl Read, bytes: &mut [u8]) -> Result<(), StreamFault> {
    reader.read_exact(bytes).map_err(|error: io::Error| {
        if error.kind() == ErrorKind::UnexpectedEof {
            StreamFault::Truncated
        } else {
            StreamFault::Read(error)
        }
    })
}

#[cfg(test)]
mod tests {
    use super::super::command::Made;
    use super::super::encode::{attribute, command, commands, header, path, snapshot, stream};
    use super::*;
    use driftless_model::RelPath;

    fn read(bytes: &[u8]) -> Result<Vec<Command>, StreamError> {
        Stream::new(bytes)?.collect()
    }

    fn rel(text: &str) -> RelPath {
        RelPath::parse(text.as_bytes()).expect("a path")
    }

    #[test]
    fn commands_are_read_with_what_they_say() {
        let lines = [
            "mkdir d",
            "symlink d/s",
            "rename d e",
            "link a e/s",
            "unlink a",
            "rmdir e",
            "update f 4096 100",
            "truncate f 5",
            "xattr f",
            "clone f 10 5",
            "utimes /",
        ];
        let found = read(&stream(&lines)).expect("a stream");
        let content = |start, end| Command::Content {
            path: rel("f"),
            range: start..end,
        };
        let make = |path: &str, made| Command::Make {
            path: rel(path),
            ino: 257,
            made,
        };
        assert!(
            matches!(&found[0], Command::Subvolume { this, parent: Some(_) } if this.name == b"newer" && this.ctransid == 7)
        );
        let expected = [
            make("d", Made::Directory),
            make("d/s", Made::Symlink),
            Command::Rename {
                path: rel("d"),
                to: rel("e"),
            },
            Command::Link {
                path: rel("a"),
                existing: rel("e/s"),
            },
            Command::Unlink { path: rel("a") },
            Command::RemoveDirectory { path: rel("e") },
            content(4096, 4196),
            Command::Truncate {
                path: rel("f"),
                size: 5,
            },
            Command::Meta { path: rel("f") },
            content(10, 15),
            Command::Meta {
                path: RelPath::root(),
            },
        ];
        assert_eq!(found[1..], expected);
    }

    #[test]
    fn data_of_versions_after_the_first_have_no_length() {
        let offset = attribute(18, &8u64.to_le_bytes());
        let data = [&19u16.to_le_bytes()[..], &[7; 70_000]].concat();
        let write = command(15, &[path(15, "f"), offset, data].concat());
        for version in [2, 3] {
            let all = [header(version), write.clone(), command(21, &[]), vec![1; 9]].concat();
            let expected = Command::Content {
                path: rel("f"),
                range: 8..70_008,
            };
            assert_eq!(read(&all).expect("a stream"), [expected]);
        }
        let cut = read(&[header(1), write].concat()).expect_err("cut off");
        assert!(matches!(cut.fault, StreamFault::Attribute(_)), "{cut}");
    }

    #[test]
    fn each_fault_is_told_with_its_place() {
        let good = stream(&["chmod a"]);
        let with = |command: Vec<u8>| [header(1), command].concat();
        let broken = |at: usize| {
            let mut bytes = good.clone();
            bytes[at] ^= 1;
            bytes
        };
        let twice = [path(15, "a"), path(15, "b")].concat();
        let huge = [
            path(15, "a"),
            attribute(18, &[255; 8]),
            attribute(4, &[255; 8]),
        ]
        .concat();
        let long = [&(COMMAND_BYTES_MAX + 1).to_le_bytes()[..], &[0; 6]].concat();
        let second = command(2, &[snapshot(), path(15, "x")].concat());
        let cases: [(Vec<u8>, &str); 16] = [
            (
                vec![],
                "byte 0 of the send stream: the stream ends without an end command",
            ),
            (
                b"btrfs-stream\x011234".to_vec(),
                "byte 0 of the send stream: not a btrfs send stream",
            ),
            (
                header(0),
                "byte 0 of the send stream: unsupported version 0 (1 to 3 are supported)",
            ),
            (
                header(4),
                "byte 0 of the send stream: unsupported version 4 (1 to 3 are supported)",
            ),
            (
                header(1),
                "byte 17 of the send stream: the stream ends without an end command",
            ),
            (
                good[..good.len() - 1].to_vec(),
                "byte 127 of the send stream: the stream ends without an end command",
            ),
            (broken(30), "byte 17 of the send stream: wrong checksum "),
            (
                with(long),
                "byte 17 of the send stream: a command has 262145 bytes, more than 262144",
            ),
            (
                with(command(99, &[])),
                "byte 17 of the send stream: unknown command 99",
            ),
            (
                with(command(11, &[])),
                "byte 17 of the send stream: command 11 lacks attribute 15",
            ),
            (
                with(command(11, &[1])),
                "byte 17 of the send stream: attribute 0 exceeds its command",
            ),
            (
                with(command(11, &twice)),
                "byte 17 of the send stream: duplicate attribute 15",
            ),
            (
                with(command(11, &path(15, "../a"))),
                "byte 17 of the send stream: \"../a\" is not a path below the subvolume",
            ),
            (
                with(command(17, &[path(15, "a"), attribute(4, b"1")].concat())),
                "byte 17 of the send stream: attribute 4 has 1 bytes",
            ),
            (
                with(command(22, &huge)),
                "byte 17 of the send stream: a range of 18446744073709551615 bytes at 18446744073709551615 exceeds",
            ),
            (
                [with(second.clone()), commands(&["rmdir a"])].concat(),
                "byte 111 of the send stream: the stream ends without an end command",
            ),
        ];
        for (bytes, expected) in cases {
            let told = read(&bytes).expect_err(expected).to_string();
            assert!(told.starts_with(expected), "{told}, not {expected}");
        }
    }

    #[test]
    fn a_stream_that_is_cut_anywhere_is_never_whole() {
        let good = stream(&["mkfile o257-9-0", "rename o257-9-0 a", "update a 0 10"]);
        assert!(read(&good).is_ok());
        for length in 0..good.len() {
            assert!(read(&good[..length]).is_err(), "{length} bytes");
        }
    }
}
