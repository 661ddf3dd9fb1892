//! Names the commit of the sources for `driftless --version`, in release builds: others would be built
//! anew with each commit.

use std::env;
use std::process::Command;

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let version = env::var("CARGO_PKG_VERSION").expect("cargo sets it");
    let is_release = env::var("PROFILE").is_ok_and(|profile| profile == "release");
    let named = match is_release.then(commit).flatten() {
        Some(commit) => format!("{version} ({commit})"),
        None => version,
    };
    println!("cargo::rustc-env=DRIFTLESS_VERSION={named}");
}

/// Returns the commit, unless the sources are in no repository or in one of another project.
fn commit() -> Option<String> {
    if git(&["rev-parse", "--show-prefix"])? != "crates/driftless/" {
        return None;
    }
    // A line comes to this file with each commit and checkout.
    let log = git(&["rev-parse", "--git-path", "logs/HEAD"])?;
    println!("cargo::rerun-if-changed={log}");
    git(&["rev-parse", "--short=12", "HEAD"])
}

fn git(arguments: &[&str]) -> Option<String> {
    let output = Command::new("git").args(arguments).output().ok()?;
    let text = String::from_utf8(output.stdout).ok()?;
    output.status.success().then(|| text.trim().to_owned())
}
