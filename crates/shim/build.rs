//! Keeps the library to the C library alone, in a workspace whose programs unwind when they panic.
//!
//! Nothing of the library panics, so the linker finds all of the standard library unused. GNU's
//! leaves it out; the one that comes with Rust keeps what unwinds for the sake of its tables. Both
//! would still write down that libgcc_s.so is needed: so they find another file of that name here,
//! which leads to the static one, of which nothing is used either.
#![allow(
    clippy::disallowed_methods,
    reason = "a file of our own, in the folder of the build"
)]

use std::path::PathBuf;

/// Set by `make shim`: the library is linked against the symbols of an old C library.
const OLD: &str = "DRIFTLESS_SHIM_OLD_GLIBC";

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-env-changed={OLD}");
    println!("cargo::rustc-check-cfg=cfg(old_glibc)");
    let folder = PathBuf::from(std::env::var_os("OUT_DIR").expect("cargo sets it"));
    std::fs::write(folder.join("libgcc_s.so"), "INPUT(-lgcc_eh)\n").expect("write it");
    println!("cargo::rustc-link-search=native={}", folder.display());
    for word in [
        "-fuse-ld=bfd",
        "-Wl,-soname,libdriftless_shim.so",
        "-Wl,-z,noseparate-code",
    ] {
        println!("cargo::rustc-cdylib-link-arg={word}");
    }
    if std::env::var_os(OLD).is_some() {
        println!("cargo::rustc-cfg=old_glibc");
        // Before 2.34, dlsym(3) was in a library of its own; later ones have an empty one there.
        println!("cargo::rustc-cdylib-link-arg=-Wl,--no-as-needed,-l:libdl.so.2,--as-needed");
    }
}
