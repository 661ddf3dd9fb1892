//! What the library is made of: what it needs, and what it stands in the place of.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{Agent, library, library_for_old_systems};
use std::collections::BTreeSet;
use std::path::Path;
use std::process::Command;

/// What a program says of a library.
fn told(program: &str, words: &[&str], library: &Path) -> String {
    let output = Command::new(program).args(words).arg(library).output();
    let output = output.expect("it starts");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// The libraries that one needs, without the loader, which comes with the C library.
fn needed(library: &Path) -> Vec<String> {
    let text = told("readelf", &["-d", "-W"], library);
    let lines = text.lines().filter(|line| line.contains("(NEEDED)"));
    let names = lines.flat_map(|line| line.split(['[', ']']).nth(1));
    let others = names.filter(|name| !name.starts_with("ld-linux"));
    others.map(str::to_owned).collect()
}

#[test]
fn it_needs_nothing_but_the_c_library() {
    assert_eq!(needed(&library()), ["libc.so.6"]);
}

#[test]
fn none_of_its_code_panics() {
    for library in [library(), library_for_old_systems()] {
        panics_nowhere(&library);
    }
}

/// A thread that is cancelled unwinds through the library, which has no part in it.
fn panics_nowhere(library: &Path) {
    let text = told("nm", &["-C"], library);
    // That of the standard library is called by the loader whether it is used or not: it takes two
    // numbers down.
    let lines = text
        .lines()
        .filter(|line| !line.contains("ARGV_INIT_ARRAY"));
    let left = lines.filter(|line| {
        ["panic", "std::", "alloc::", "_Unwind", "rust_begin"]
            .iter()
            .any(|word| line.contains(word))
    });
    assert_eq!(left.collect::<Vec<_>>(), [""; 0]);
}

#[test]
fn it_uses_few_functions_of_the_c_library() {
    let text = told("nm", &["-D", "--undefined-only"], &library());
    let used: BTreeSet<&str> = text
        .split_whitespace()
        .filter_map(|word| word.split_once('@'))
        .map(|(name, _)| name)
        .collect();
    let may = [
        "__cxa_at_quick_exit",
        "__cxa_finalize",
        "__errno_location",
        "__register_atfork",
        "bcmp",
        "clock_gettime",
        "dlsym",
        "fcloseall",
        "fileno",
        "geteuid",
        "memchr",
        "memcmp",
        "memcpy",
        "memmove",
        "memrchr",
        "memset",
        "secure_getenv",
        "strlen",
        "strnlen",
        "syscall",
    ];
    let may: BTreeSet<&str> = may.into();
    assert_eq!(used.difference(&may).collect::<Vec<_>>(), [&""; 0]);
}

#[test]
fn system_calls_by_number_are_left_alone() {
    let text = told("nm", &["-D", "--defined-only"], &library());
    let names: BTreeSet<&str> = text
        .lines()
        .flat_map(|line| line.split(' ').nth(2))
        .collect();
    for name in ["close", "open64", "renameat2", "execl", "mremap", "recvmsg"] {
        assert!(names.contains(name), "{name}");
    }
    for name in ["syscall", "malloc", "free", "write", "read", "exit"] {
        assert!(!names.contains(name), "{name}");
    }
}

#[test]
fn that_for_old_systems_needs_no_symbol_of_a_newer_one() {
    let library = library_for_old_systems();
    let text = told("nm", &["-D", "--undefined-only"], &library);
    let versions = text.lines().flat_map(|line| line.split("@GLIBC_").nth(1));
    let of = |version: &str| -> Vec<u32> { version.split('.').flat_map(str::parse).collect() };
    let newest = versions.map(of).max().expect("versions");
    assert!(newest <= vec![2, 17], "{newest:?}");
    let expected = ["libc.so.6", "libdl.so.2"];
    assert_eq!(needed(&library), expected);
}

#[test]
fn that_for_old_systems_announces_the_same() {
    let mut agent = Agent::new();
    let mut command = agent.command("dash");
    command.env("LD_PRELOAD", library_for_old_systems());
    let output = command.args(["-c", "echo x >n; mv n m; rm -r d"]).output();
    assert!(output.expect("it starts").status.success());
    assert_eq!(agent.announced().all, ["w n", "r n m", "d d/g", "d d"]);
}
