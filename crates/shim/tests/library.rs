//! What the library is made of: what it needs, and what it stands in the place of.
#![allow(clippy::disallowed_methods)]

mod common;

use common::library;
use std::collections::BTreeSet;
use std::process::Command;

fn told(program: &str, words: &[&str]) -> String {
    let output = Command::new(program).args(words).arg(library()).output();
    let output = output.expect("it starts");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

#[test]
fn it_needs_nothing_but_the_c_library() {
    let text = told("readelf", &["-d", "-W"]);
    let needed = text.lines().filter(|line| line.contains("(NEEDED)"));
    let needed: Vec<&str> = needed
        .flat_map(|line| line.split(['[', ']']).nth(1))
        .collect();
    let others = needed.iter().filter(|name| !name.starts_with("ld-linux"));
    assert_eq!(others.collect::<Vec<_>>(), [&"libc.so.6"]);
}

#[test]
fn none_of_its_code_panics() {
    let text = told("nm", &["-C"]);
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
    let text = told("nm", &["-D", "--undefined-only"]);
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
    let text = told("nm", &["-D", "--defined-only"]);
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
