//! Features of libraries that test programs share.

use super::project;
use std::collections::BTreeSet;
use std::process::Command;

/// Returns packages and their features, as cargo selects them for a build.
fn selected(words: &[&str]) -> BTreeSet<String> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["tree", "--offline", "--prefix=none", "--format={p} {f}"])
        .args(words)
        .current_dir(project());
    let output = cargo.output().expect("cargo starts");
    let text = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{words:?}");
    let lines = text.lines().map(|line| line.trim_end_matches(" (*)"));
    lines.map(str::to_owned).collect()
}

#[test]
fn static_program_uses_libraries_of_the_tests() {
    let of_tests = selected(&[
        "--workspace",
        "--exclude=driftless-queue",
        "--features=driftless/ftps",
    ]);
    let program = selected(&[
        "--package=driftless",
        "--features=static-program",
        "--edges=normal,build",
    ]);
    let others: Vec<&String> = program.difference(&of_tests).collect();
    assert!(
        matches!(others[..], [own] if own.ends_with(" static-program")),
        "cargo builds these anew, and what uses them: {others:?}"
    );
}
