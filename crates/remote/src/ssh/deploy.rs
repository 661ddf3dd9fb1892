//! Bringing the agent along: a statically linked program is copied into the user's cache on the
//! other host, and started from there.
//!
//! All goes through the command that connects, and needs no more there than `sh` and what every
//! Linux has (`find`, `mktemp`, `sha256sum`). The name of the folder says version and content, so
//! that what is there already is not copied again; what is there is started only if its hash is
//! right, in a folder that only this user may change.

use crate::ssh::child::{TICK, ask_to_end, start};
use crate::ssh::complaint::{Complaint, listen, words};
use crate::ssh::reach::{Deploy, Reach, ReachError};
use crate::ssh::silence::SilenceLimit;
use crate::ssh::spawn::spawn_there;
use crate::wire::handshake::NOISE_BYTES_MAX;
use crossbeam_channel::unbounded;
use driftless_model::{cause, escape, quote};
use elf::ElfBytes;
use elf::abi::{
    EM_386, EM_AARCH64, EM_ARM, EM_LOONGARCH, EM_PPC64, EM_RISCV, EM_S390, EM_X86_64, PT_INTERP,
};
use elf::endian::AnyEndian;
use sha2::{Digest, Sha256};
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::path::Path;
use std::process::ChildStdin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// What is behind this is no shell's noise.
const MARK: &str = "driftless-deploy ";
/// Bytes that are sent at once; a host that has taken them is not silent.
const PIECE_BYTES: usize = 64 << 10;
/// Digits of the hash in the folder's name.
const HASH_DIGITS: usize = 16;

/// `$1` is the name of the folder, `$2` the hash. Says what machine it is, and either where the
/// program is or where it is to be put. Nobody else may be able to put something else there, not
/// between the look at it and its start either: each folder is a real one and the user's own, and
/// nobody but he and root may rename in those above.
const PREPARE: &str = r#"
say() { printf 'driftless-deploy %s\n' "$*"; }
fail() { say fail "$*"; exit 0; }
umask 077
say system "$(uname -sm)"
base=${XDG_CACHE_HOME:-$HOME/.cache}
case $base in /*) ;; *) fail "the cache directory \"$base\" is not an absolute path" ;; esac
said=$(mkdir -p "$base" 2>&1) || fail "$said"
above=$(cd -P "$base" 2>/dev/null && pwd -P) || fail "the cache directory \"$base\" cannot be entered"
while :; do
    [ -n "$(find "$above" -prune -type d \( -user "$(id -u)" -o -user 0 \) \( ! -perm -0020 ! -perm -0002 -o -perm -1000 \))" ] ||
        fail "others may change the directory \"$above\", and so what is started from the cache: \"chmod go-w\" it, or name another with XDG_CACHE_HOME"
    [ "$above" != / ] || break
    above=${above%/*}
    above=${above:-/}
done
for dir in "$base/driftless" "$base/driftless/$1"; do
    said=$(mkdir "$dir" 2>&1)
    [ -d "$dir" ] || [ -L "$dir" ] || fail "$said"
    [ -n "$(find "$dir" -prune -type d -user "$(id -u)")" ] || fail "\"$dir\" is not a directory of this user: remove it"
    said=$(chmod 700 "$dir" 2>&1) || fail "$said"
done
file=$dir/driftless
if [ -n "$(find "$file" -prune -type f -user "$(id -u)" ! -perm -0020 ! -perm -0002 -perm -0100 2>/dev/null)" ] &&
    [ "$(sha256sum <"$file" | cut -c 1-64)" = "$2" ]; then
    say have "$file"
    exit 0
fi
find "$dir" -name '.new-*' -mtime +0 -exec rm -f {} \;
new=$(mktemp "$dir/.new-XXXXXX" 2>&1) || fail "$new"
say need "$new"
"#;

/// `$1` is where the program was put, `$2` its hash. Gives it its name, if it is what was sent.
const PUBLISH: &str = r#"
say() { printf 'driftless-deploy %s\n' "$*"; }
fail() { rm -f "$1"; say fail "$2"; exit 0; }
file=${1%/*}/driftless
[ "$(sha256sum <"$1" | cut -c 1-64)" = "$2" ] || fail "$1" "the copied file is damaged (is the disk full?)"
if [ -L "$file" ] || [ ! -f "$file" ]; then rm -rf "$file"; fi
said=$(chmod 700 "$1" 2>&1 && mv -f "$1" "$file" 2>&1) || fail "$1" "$said"
say have "$file"
"#;

/// A program to be copied.
struct Program {
    bytes: Vec<u8>,
    machine: u16,
    hash: String,
}

/// Brings the program to the host, unless it is there, and returns where.
pub fn bring(name: &str, reach: &Reach, program: &Deploy) -> Result<String, ReachError> {
    let failed = |why: String| ReachError::NotDeployed {
        host: name.into(),
        why,
    };
    let program = Program::load(program).map_err(failed)?;
    let host = There { name, reach };
    let folder = format!(
        "{}-{}",
        env!("CARGO_PKG_VERSION"),
        &program.hash[..HASH_DIGITS]
    );
    let prepared = host.script(PREPARE, &[&folder, &program.hash])?;
    program
        .fits(prepared.word("system").unwrap_or_default())
        .map_err(failed)?;
    if let Some(file) = prepared.word("have") {
        return Ok(file.into());
    }
    let Some(new) = prepared.word("need") else {
        return Err(failed(prepared.why()));
    };
    host.run(
        &format!("sh -c 'cat >\"$0\"' {}", shell_words::quote(new)),
        program.bytes.clone(),
    )?;
    let published = host.script(PUBLISH, &[new, &program.hash])?;
    published
        .word("have")
        .map(str::to_owned)
        .ok_or_else(|| failed(published.why()))
}

/// Checks that a program can be copied to hosts.
///
/// # Errors
/// Returns the cause: the file cannot be read, or is not a statically linked program for Linux.
pub fn check_deploy(program: &Deploy) -> Result<(), String> {
    Program::load(program).map(drop)
}

impl Program {
    #[allow(
        clippy::disallowed_methods,
        reason = "a program of the user's, no part of a replicated tree"
    )]
    fn load(from: &Deploy) -> Result<Program, String> {
        let (path, hint) = match from {
            // Also when its file was replaced meanwhile (proc(5)).
            Deploy::Own => (
                Path::new("/proc/self/exe"),
                "build a static one with \"make static\", or name one with --deploy=FILE",
            ),
            Deploy::File(path) => (path.as_path(), "\"make static\" builds one"),
        };
        let shown = if *from == Deploy::Own {
            "this program".into()
        } else {
            quote(path)
        };
        let bytes =
            fs::read(path).map_err(|error| format!("{shown}: cannot read: {}", cause(&error)))?;
        let (machine, is_dynamic) =
            inspect(&bytes).ok_or_else(|| format!("{shown} is not a Linux program"))?;
        if is_dynamic {
            return Err(format!(
                "{shown} is dynamically linked, and may not find its libraries there: {hint}"
            ));
        }
        let hash = Sha256::digest(&bytes)
            .iter()
            .map(|byte| format!("{byte:02x}"))
            .collect();
        Ok(Program {
            bytes,
            machine,
            hash,
        })
    }

    /// Whether it runs on what `uname -sm` says.
    fn fits(&self, system: &str) -> Result<(), String> {
        let own = machine_word(self.machine);
        let is_own = own.is_none_or(|own| {
            system
                .strip_prefix("Linux ")
                .is_some_and(|machine| own.contains(&machine))
        });
        let shown = own.map_or("another machine", |own| own[0]);
        let other = || {
            format!(
                "the host is \"{}\", and the program is for Linux on {shown}: name one that fits with --deploy=FILE",
                escape(system.as_bytes())
            )
        };
        if is_own { Ok(()) } else { Err(other()) }
    }
}

/// The machine that a program is for (elf(5), `e_machine`), and whether it asks for a dynamic
/// linker (`PT_INTERP`).
fn inspect(bytes: &[u8]) -> Option<(u16, bool)> {
    let file = ElfBytes::<AnyEndian>::minimal_parse(bytes).ok()?;
    let is_dynamic = file
        .segments()?
        .iter()
        .any(|segment| segment.p_type == PT_INTERP);
    Some((file.ehdr.e_machine, is_dynamic))
}

/// What uname(1) calls the machines on which programs for this one run.
fn machine_word(machine: u16) -> Option<&'static [&'static str]> {
    Some(match machine {
        EM_X86_64 => &["x86_64"],
        EM_AARCH64 => &["aarch64"],
        EM_RISCV => &["riscv64"],
        EM_PPC64 => &["ppc64le", "ppc64"],
        EM_S390 => &["s390x"],
        EM_LOONGARCH => &["loongarch64"],
        EM_386 => &["i686", "i586", "i386", "x86_64"],
        EM_ARM => &["armv7l", "armv6l", "armv8l", "aarch64"],
        _ => return None,
    })
}

/// The host.
struct There<'a> {
    name: &'a str,
    reach: &'a Reach,
}

/// What a script said.
struct Said {
    lines: Vec<String>,
    complaint: String,
}

impl Said {
    /// What follows a word.
    fn word(&self, word: &str) -> Option<&str> {
        self.lines
            .iter()
            .find_map(|line| line.strip_prefix(word)?.strip_prefix(' '))
    }

    /// Why it did not do what it was to do.
    fn why(&self) -> String {
        let said = self.word("fail").map(|why| escape(why.as_bytes()));
        said.unwrap_or_else(|| format!("unexpected answer of the shell there{}", self.complaint))
    }
}

impl There<'_> {
    /// Runs a script. It goes over standard input, so that it does not matter whose syntax the
    /// login shell has.
    fn script(&self, script: &str, arguments: &[&str]) -> Result<Said, ReachError> {
        let arguments: Vec<_> = arguments
            .iter()
            .map(|argument| shell_words::quote(argument))
            .collect();
        self.run(&format!("sh -s -- {}", arguments.join(" ")), script.into())
    }

    /// Runs a command line with this on its standard input.
    fn run(&self, command_line: &str, input: Vec<u8>) -> Result<Said, ReachError> {
        let mut child = spawn_there(self.name, self.reach, command_line)?;
        let complaint = Complaint::default();
        listen(
            child.stderr.take().expect("it is piped"),
            Arc::clone(&complaint),
        );
        let taken = feed(child.stdin.take().expect("it is piped"), input);
        let output = BufReader::new(
            child
                .stdout
                .take()
                .expect("it is piped")
                .take(NOISE_BYTES_MAX),
        );
        let (tell, told) = unbounded();
        start("deploy-in", output, move |output| {
            let lines = output
                .split(b'\n')
                .map_while(Result::ok)
                .map(|line| String::from_utf8_lossy(&line).into_owned());
            // What a start-up file prints need not end its line.
            let _nobody_waits_any_more = tell.send(
                lines
                    .filter_map(|line| Some(line.split_once(MARK)?.1.to_owned()))
                    .collect(),
            );
        });
        let mut limit = SilenceLimit::new(&child, self.reach.connecting);
        let lines = loop {
            if taken.swap(0, Relaxed) > 0 {
                limit.restart();
            }
            match told.recv_timeout(TICK) {
                Ok(lines) => break lines,
                Err(_) if limit.is_over() => {
                    ask_to_end(&mut child);
                    return Err(ReachError::NotDeployed {
                        host: self.name.into(),
                        why: limit.words("answer of the shell"),
                    });
                }
                Err(_) if self.reach.is_stopped() => {
                    ask_to_end(&mut child);
                    return Err(ReachError::NoAnswer(self.name.into()));
                }
                Err(_) => {}
            }
        };
        let ended = child.wait().is_ok_and(|status| status.success());
        let complaint = words(&complaint);
        if ended {
            Ok(Said { lines, complaint })
        } else {
            Err(ReachError::NotDeployed {
                host: self.name.into(),
                why: format!("\"sh\" fails there{complaint}"),
            })
        }
    }
}

/// Starts to write `input`, and returns the number of pieces that were taken since it was set to 0
/// last. The host notices what does not arrive.
fn feed(stdin: ChildStdin, input: Vec<u8>) -> Arc<AtomicUsize> {
    let taken = Arc::new(AtomicUsize::new(0));
    let taking = taken.clone();
    start("deploy", stdin, move |mut stdin| {
        let mut pieces = input.chunks(PIECE_BYTES);
        while let Some(Ok(())) = pieces.next().map(|piece| stdin.write_all(piece)) {
            taking.fetch_add(1, Relaxed);
        }
    });
    taken
}

#[cfg(test)]
mod tests {
    use super::*;

    fn program(machine: u16) -> Program {
        Program {
            bytes: Vec::new(),
            machine,
            hash: String::new(),
        }
    }

    #[test]
    fn a_program_goes_only_where_it_runs() {
        let cases = [
            (EM_X86_64, "Linux x86_64", true),
            (EM_X86_64, "Linux aarch64", false),
            (EM_X86_64, "FreeBSD x86_64", false),
            (EM_X86_64, "", false),
            (EM_AARCH64, "Linux aarch64", true),
            (EM_386, "Linux x86_64", true),
            (EM_PPC64, "Linux ppc64le", true),
        ];
        for (machine, system, expected) in cases {
            assert_eq!(
                program(machine).fits(system).is_ok(),
                expected,
                "{machine} {system}"
            );
        }
    }

    #[test]
    fn what_is_no_program_is_told() {
        assert_eq!(inspect(b"#!/bin/sh\n"), None);
        assert_eq!(inspect(b"\x7fELF"), None);
        assert_eq!(inspect(&[]), None);
    }
}
