//! What may import what, and what must never be there. `ARCHITECTURE.md` says the same, and is
//! checked against it.
#![allow(clippy::disallowed_methods)]

#[path = "edges/features.rs"]
mod features;
#[path = "edges/language.rs"]
mod language;
#[path = "edges/shape.rs"]
mod shape;

use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

/// A crate and the crates of this workspace that it may use; the last list is for its tests only.
const EDGES: [(&str, &[&str], &[&str]); 34] = [
    ("lock", &[], &[]),
    ("model", &[], &[]),
    ("tree", &["lock", "model"], &[]),
    ("reconcile", &["model"], &[]),
    ("state", &["model"], &[]),
    ("mover", &["lock", "model", "tree", "reconcile"], &[]),
    (
        "remote",
        &["lock", "model", "tree", "reconcile", "mover"],
        &[],
    ),
    ("planner", &[], &[]),
    ("taskfile", &[], &[]),
    ("pool", &["lock"], &[]),
    ("dataplane", &["lock", "model", "pool"], &[]),
    ("verify", &["lock", "model", "tree", "pool"], &[]),
    (
        "engine",
        &[
            "lock",
            "model",
            "tree",
            "reconcile",
            "state",
            "mover",
            "pool",
        ],
        &[],
    ),
    (
        "session",
        &["lock", "model", "tree", "remote", "engine"],
        &[],
    ),
    (
        "fleet",
        &[
            "lock", "model", "pool", "remote", "queue", "state", "engine", "session",
        ],
        &[],
    ),
    (
        "audit",
        &[
            "lock",
            "model",
            "tree",
            "reconcile",
            "pool",
            "verify",
            "engine",
        ],
        &[],
    ),
    (
        "driftless",
        &[
            "lock",
            "model",
            "tree",
            "reconcile",
            "remote",
            "verify",
            "state",
            "queue",
            "pool",
            "engine",
            "session",
            "fleet",
            "audit",
            "detect",
            "mirror",
            "spool",
            "watch",
            "sarracenia",
            "announce",
            "cast",
            "batch",
            "deposit",
            "gateway",
            "taskfile",
            "ftps",
        ],
        &["testkit"],
    ),
    (
        "store",
        &["lock", "model", "tree", "reconcile", "state"],
        &["testkit"],
    ),
    (
        "cast",
        &[
            "lock",
            "model",
            "pool",
            "remote",
            "dataplane",
            "planner",
            "store",
        ],
        &["testkit"],
    ),
    ("batch", &["model", "planner"], &["testkit"]),
    (
        "gateway",
        &[
            "batch", "cast", "deposit", "lock", "model", "state", "taskfile",
        ],
        &["testkit"],
    ),
    ("deposit", &["model"], &[]),
    ("ftps", &["lock", "model", "tree", "remote", "deposit"], &[]),
    ("queue", &["lock"], &["testkit"]),
    ("detect", &["lock", "model"], &["testkit"]),
    (
        "mirror",
        &[
            "lock",
            "model",
            "remote",
            "state",
            "engine",
            "session",
            "detect",
            "sarracenia",
            "settings",
            "metrics",
        ],
        &[],
    ),
    ("settings", &["model"], &[]),
    ("metrics", &[], &[]),
    ("sarracenia", &["model"], &[]),
    ("shim", &[], &[]),
    ("spool", &["model", "detect"], &[]),
    (
        "watch",
        &[
            "lock",
            "model",
            "state",
            "detect",
            "settings",
            "metrics",
            "spool",
            "sarracenia",
            "announce",
        ],
        &[],
    ),
    (
        "announce",
        &["lock", "model", "detect", "queue", "sarracenia"],
        &["testkit"],
    ),
    ("testkit", &[], &[]),
];

/// Outside crates that a few crates may use; of the pure ones, none that does I/O.
const PURE: [(&str, &[&str]); 6] = [
    // Loaded into users' programs, where there is nothing but the C library.
    ("shim", &["libc"]),
    ("model", &["regex", "serde"]),
    ("planner", &["serde", "thiserror"]),
    (
        "taskfile",
        &["shell-words", "strsim", "thiserror", "winnow"],
    ),
    (
        "reconcile",
        &["serde", "thiserror", "unicode-normalization"],
    ),
    (
        "sarracenia",
        &[
            "base64",
            "percent-encoding",
            "serde",
            "serde_json",
            "thiserror",
        ],
    ),
];

fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the workspace")
}

fn short(name: &str) -> &str {
    name.strip_prefix("driftless-").unwrap_or(name)
}

fn packages() -> Vec<Value> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    cargo
        .args(["metadata", "--format-version=1", "--no-deps", "--offline"])
        .current_dir(project());
    let output = cargo.output().expect("cargo starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let all: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    all["packages"].as_array().expect("a list").clone()
}

/// The names of a package's dependencies, of the kinds asked for.
fn dependencies(package: &Value, dev: bool) -> BTreeSet<String> {
    let all = package["dependencies"].as_array().expect("a list").iter();
    let wanted = all.filter(|dependency| (dependency["kind"] == "dev") == dev);
    wanted
        .map(|dependency| dependency["name"].as_str().expect("a name").to_owned())
        .collect()
}

fn set(names: &[&str]) -> BTreeSet<String> {
    names.iter().map(ToString::to_string).collect()
}

#[test]
fn crates_use_only_the_crates_that_they_may() {
    let packages = packages();
    let names: BTreeSet<String> = packages
        .iter()
        .map(|package| short(package["name"].as_str().expect("a name")).to_owned())
        .collect();
    assert_eq!(
        names,
        EDGES.iter().map(|(name, _, _)| name.to_string()).collect(),
        "the crates of the workspace"
    );
    let ours = |all: BTreeSet<String>| -> BTreeSet<String> {
        all.iter()
            .filter(|name| name.starts_with("driftless"))
            .map(|name| short(name).to_owned())
            .collect()
    };
    for package in &packages {
        let name = short(package["name"].as_str().expect("a name"));
        let (_, may, may_in_tests) = EDGES
            .iter()
            .find(|(crate_name, _, _)| *crate_name == name)
            .expect("it was compared above");
        let (uses, tests_use) = (
            ours(dependencies(package, false)),
            ours(dependencies(package, true)),
        );
        assert!(
            uses.is_subset(&set(may)),
            "{name} uses {uses:?}, and may use {may:?}"
        );
        // With other features, say.
        let further: BTreeSet<String> = tests_use.difference(&uses).cloned().collect();
        assert!(
            further.is_subset(&set(may_in_tests)),
            "the tests of {name} use {tests_use:?}"
        );
    }
}

#[test]
fn pure_crates_and_the_shim_use_nothing_further() {
    for (name, may) in PURE {
        let packages = packages();
        let package = packages
            .iter()
            .find(|package| short(package["name"].as_str().unwrap_or("")) == name)
            .expect("the crate");
        let uses: BTreeSet<String> = dependencies(package, false)
            .into_iter()
            .filter(|name| !name.starts_with("driftless"))
            .collect();
        assert!(uses.is_subset(&set(may)), "{name} uses {uses:?}");
    }
}

/// Lines of code, comments left out: file below the project, number, text.
fn code(krate: &str) -> Vec<(String, usize, String)> {
    let mut lines = Vec::new();
    for path in sources(&project().join("crates").join(krate)) {
        let name = path
            .strip_prefix(project())
            .expect("below")
            .to_str()
            .expect("text")
            .to_owned();
        let text = fs::read_to_string(&path).expect("a source file");
        let real = text
            .lines()
            .enumerate()
            .filter(|(_, line)| !line.trim_start().starts_with("//"));
        lines.extend(real.map(|(number, line)| (name.clone(), number + 1, line.to_owned())));
    }
    assert!(!lines.is_empty(), "no source in {krate}");
    lines
}

fn sources(folder: &Path) -> Vec<PathBuf> {
    files(folder, &["rs"])
}

/// The files below a folder whose names end so; build results are left out.
fn files(folder: &Path, extensions: &[&str]) -> Vec<PathBuf> {
    let (mut found, mut folders) = (Vec::new(), vec![folder.to_owned()]);
    while let Some(folder) = folders.pop() {
        for path in fs::read_dir(folder)
            .expect("list")
            .map(|entry| entry.expect("entry").path())
        {
            match path.extension() {
                _ if path.is_dir() && path.file_name().is_some_and(|name| name != "target") => {
                    folders.push(path)
                }
                Some(extension) if extensions.iter().any(|one| extension == *one) => {
                    found.push(path)
                }
                _ => {}
            }
        }
    }
    found
}

/// Modules of the engine in layers, the lowest first; a name stands for all below it that no other
/// layer names. What a module imports stands in its own layer or in a lower one.
const ENGINE_LAYERS: [&[&str]; 8] = [
    &[
        "clock",
        "tally",
        "sample",
        "view",
        "underway",
        "monitor",
        "estimate",
        "lent",
        "first_roots",
        "options",
    ],
    &["trees"],
    &[
        "shared::unfinished",
        "shared::settled",
        "shared::handed",
        "shared::batch",
        "shared::brief",
        "shared::plan",
        "shared::lease",
    ],
    &[
        "sync::entered",
        "sync::deletes",
        "sync::hashes",
        "sync::links",
        "sync::nested",
        "sync::owners",
        "sync::namesakes",
        "sync::narrowing",
        "sync::protected",
        "sync::trash",
    ],
    &[
        "sync::visit",
        "sync::entry",
        "sync::task",
        "sync::pending",
        "sync::twice",
        "sync::ground",
        "shared::role",
    ],
    &["sync::run"],
    &[
        "sync",
        "sync::trash::aside",
        "sync::trash::restore",
        "shared::give_back",
    ],
    &["shared"],
];

/// The modules of a crate, and those of the crate that each imports; what only tests import is left
/// out.
fn imports(krate: &str) -> BTreeMap<String, BTreeSet<String>> {
    let src = project().join("crates").join(krate).join("src");
    let module_at = |path: &Path| {
        let path = path.strip_prefix(&src).expect("below").with_extension("");
        let name = path.to_str().expect("text").replace('/', "::");
        name.trim_end_matches("::mod").to_owned()
    };
    let is_of_tests = |path: &PathBuf| path.file_stem().is_some_and(|stem| stem == "tests");
    let paths: Vec<PathBuf> = sources(&src)
        .into_iter()
        .filter(|path| !is_of_tests(path))
        .collect();
    let modules: BTreeSet<String> = paths.iter().map(|path| module_at(path)).collect();
    let of = |path: &PathBuf| {
        let own = module_at(path);
        let text = fs::read_to_string(path).expect("a source file");
        let named = paths_named(&text, &own);
        let mut imported: BTreeSet<String> = named
            .iter()
            .filter_map(|words| module_of(words, &modules))
            .collect();
        imported.remove(&own);
        (own, imported)
    };
    paths.iter().map(of).collect()
}

/// The module in which a path within a crate ends.
fn module_of(words: &[String], modules: &BTreeSet<String>) -> Option<String> {
    (1..=words.len())
        .rev()
        .map(|length| words[..length].join("::"))
        .find(|module| modules.contains(module))
}

/// Paths from the root of the crate that the text of a module names, as `crate::`, `super::` or `self::`.
fn paths_named(text: &str, own: &str) -> Vec<Vec<String>> {
    let text = text.split("#[cfg(test)]").next().expect("the first part");
    let lines = text
        .lines()
        .filter(|line| !line.trim_start().starts_with("//"));
    let text = lines.collect::<Vec<_>>().join(" ");
    let mut found = Vec::new();
    for root in ["crate::", "super::", "self::"] {
        for (at, _) in text.match_indices(root) {
            if !text[..at].ends_with(|c: char| c.is_alphanumeric() || "_:".contains(c)) {
                found.extend(spread(path_at(&text[at..])));
            }
        }
    }
    found.iter().map(|path| from_root(path, own)).collect()
}

/// The path at the beginning of a text, with all that stands in its braces.
fn path_at(text: &str) -> &str {
    let (mut depth, mut before) = (0, ' ');
    let ends = |(_, c): &(usize, char)| {
        match c {
            '{' if before == ':' || depth > 0 => depth += 1,
            '}' if depth > 0 => depth -= 1,
            _ if depth > 0 || c.is_alphanumeric() || "_:".contains(*c) => {}
            _ => return true,
        }
        before = *c;
        false
    };
    let end = text.char_indices().find(ends).map(|(end, _)| end);
    &text[..end.unwrap_or(text.len())]
}

/// The paths that one with braces stands for.
fn spread(path: &str) -> Vec<String> {
    let Some((head, rest)) = path.split_once('{') else {
        return vec![path.trim().to_owned()];
    };
    let inner = &rest[..rest.rfind('}').unwrap_or(rest.len())];
    let mut depth = 0;
    let parts = inner.split(|c| {
        depth += i32::from(c == '{') - i32::from(c == '}');
        c == ',' && depth == 0
    });
    let parts = parts.filter(|part| !part.trim().is_empty());
    parts
        .flat_map(|part| spread(&format!("{head}{}", part.trim())))
        .collect()
}

/// The words of a path that a module names, from the root of its crate.
fn from_root(path: &str, own: &str) -> Vec<String> {
    let mut base: Vec<&str> = own.split("::").filter(|word| *word != "lib").collect();
    let mut rest = path.split("::").peekable();
    if rest.next_if_eq(&"crate").is_some() {
        base.clear();
    }
    while rest.next_if_eq(&"super").is_some() {
        base.pop();
    }
    let _itself = rest.next_if_eq(&"self");
    base.into_iter().chain(rest).map(str::to_owned).collect()
}

#[test]
fn imports_are_seen_however_they_are_written() {
    let of = |text: &str| -> Vec<String> {
        let named = paths_named(text, "sync::entries::make");
        named.iter().map(|words| words.join("::")).collect()
    };
    assert_eq!(of("use crate::sync::run::Run;"), ["sync::run::Run"]);
    assert_eq!(of("use super::super::run::Run;"), ["sync::run::Run"]);
    assert_eq!(
        of("use self::kind::{Of};"),
        ["sync::entries::make::kind::Of"]
    );
    assert_eq!(of("    super::kind::of(1)"), ["sync::entries::kind::of"]);
    assert_eq!(
        of("use crate::{a,\n    b::{c, d::E}};\nuse super::*;"),
        ["a", "b::c", "b::d::E", "sync::entries::"]
    );
    for text in [
        "// crate::run",
        "#[cfg(test)]\nuse crate::run;",
        "use serde::de;",
    ] {
        assert!(of(text).is_empty(), "{text}");
    }
}

#[test]
fn modules_import_each_other_in_no_circle() {
    for (krate, _, _) in EDGES {
        let mut left = imports(krate);
        // What imports nothing that is left is in no circle.
        while let Some(free) = left
            .iter()
            .find(|(_, imported)| imported.iter().all(|one| !left.contains_key(one)))
            .map(|(name, _)| name.clone())
        {
            left.remove(&free);
        }
        assert!(
            left.is_empty(),
            "{krate}: in a circle, or above one: {:?}",
            left.keys()
        );
    }
}

#[test]
fn modules_of_the_engine_import_none_of_a_higher_layer() {
    let layer_of = |module: &str| {
        let named = ENGINE_LAYERS
            .iter()
            .enumerate()
            .flat_map(|(layer, names)| names.iter().map(move |name| (layer, *name)));
        let fits =
            named.filter(|(_, name)| module == *name || module.starts_with(&format!("{name}::")));
        fits.max_by_key(|(_, name)| name.len())
            .map(|(layer, _)| layer)
    };
    let modules = imports("engine");
    for name in ENGINE_LAYERS.concat() {
        assert!(modules.contains_key(name), "there is no {name}");
    }
    for (module, imported) in modules.into_iter().filter(|(module, _)| module != "lib") {
        let layer = layer_of(&module).unwrap_or_else(|| panic!("{module} has no layer"));
        for one in imported {
            assert!(
                layer_of(&one).is_some_and(|lower| lower <= layer),
                "{module} imports {one}"
            );
        }
    }
}

#[test]
fn unsafe_code_stands_in_three_files_and_the_shim() {
    let allow = concat!("allow(", "unsafe_code");
    let mut places = BTreeSet::new();
    for (krate, _, _) in EDGES {
        places.extend(
            code(krate)
                .into_iter()
                .filter(|(_, _, line)| line.contains(allow))
                .map(|(name, _, _)| name),
        );
        let inherits = fs::read_to_string(project().join("crates").join(krate).join("Cargo.toml"))
            .expect("manifest");
        assert!(
            inherits.contains("[lints]\nworkspace = true"),
            "{krate} does not take the lints of the workspace"
        );
    }
    assert_eq!(
        places,
        set(&[
            "crates/detect/src/fanotify/sys.rs",
            "crates/detect/src/snapshot/btrfs/sys.rs",
            "crates/shim/src/lib.rs",
            "crates/tree/src/local/sys.rs"
        ])
    );
    let manifest = fs::read_to_string(project().join("Cargo.toml")).expect("manifest");
    assert!(
        manifest.contains("unsafe_code = \"deny\"")
            || manifest.contains("unsafe_code = \"forbid\"")
    );
}

#[test]
fn replicated_trees_are_never_reached_by_std_fs() {
    for krate in ["model", "tree", "reconcile", "state", "mover", "engine"] {
        for (name, number, line) in code(krate)
            .into_iter()
            .filter(|(name, _, _)| name.contains("/src/"))
        {
            let rest = line
                .replace("std::fs::File;", "")
                .replace("std::fs::File>", "");
            let bad = [
                "std::fs",
                "File::open",
                "File::create",
                "OpenOptions",
                "std::process::Command",
            ]
            .iter()
            .find(|bad| rest.contains(**bad));
            assert_eq!(bad, None, "{name}:{number}: {line}");
        }
    }
}

#[test]
fn calls_that_take_a_whole_path_are_for_the_roots_and_for_open_handles() {
    let calls = [
        "open", "stat", "lstat", "statfs", "chmod", "chown", "readlink", "link", "symlink",
        "rename", "unlink", "mkdir", "rmdir",
    ];
    let xattrs = [
        "getxattr",
        "lgetxattr",
        "setxattr",
        "lsetxattr",
        "listxattr",
        "llistxattr",
        "removexattr",
        "lremovexattr",
    ];
    let calls: Vec<String> = calls
        .iter()
        .chain(&xattrs)
        .map(|call| format!(" fs::{call}("))
        .collect();
    let mut seen = 0;
    for (name, number, line) in code("tree")
        .into_iter()
        .filter(|(name, _, _)| !name.ends_with("root.rs"))
    {
        let spaced = format!(" {line}")
            .replace("rustix::fs::", " fs::")
            .replace(['(', '|'], "( ");
        if calls.iter().any(|call| spaced.contains(call.as_str())) {
            seen += 1;
            assert!(line.contains("proc_path("), "{name}:{number}: {line}");
        }
    }
    assert!(seen > 4, "the test has lost its grip");
    for krate in ["mover", "engine"] {
        let bad = code(krate)
            .into_iter()
            .find(|(_, _, line)| line.contains("rustix::fs"));
        assert_eq!(bad, None, "only tree touches files");
    }
}

#[test]
fn only_the_binary_prints() {
    for krate in [
        "lock",
        "model",
        "tree",
        "reconcile",
        "state",
        "mover",
        "pool",
        "verify",
        "engine",
        "audit",
        "queue",
        "session",
        "fleet",
        "mirror",
        "remote",
        "detect",
        "sarracenia",
        "shim",
        "dataplane",
        "planner",
        "taskfile",
    ] {
        let prints = |line: &str| {
            [
                "println!",
                "eprintln!",
                "print!",
                "eprint!",
                "stdout()",
                "stderr()",
            ]
            .iter()
            .any(|call| line.contains(call))
        };
        // The standard output of a mover is its connection to the coordinator, that of an agent to
        // its client, that of a build script to cargo; a test that measures says what.
        let may = [
            "/examples/",
            "shim/build.rs",
            "shim/tests/host.rs",
            "fleet/src/hosts/stdio.rs",
            "remote/src/agent/streams.rs",
        ];
        let is_told = |name: &str, line: &str| {
            prints(line) && !line.contains("\"seed {") && !may.iter().any(|one| name.contains(one))
        };
        let bad = code(krate)
            .into_iter()
            .find(|(name, _, line)| is_told(name, line));
        assert_eq!(bad, None);
    }
}

#[test]
fn error_numbers_have_names() {
    let is_naked = |line: &str| {
        let after = ["errno: ", "errno == ", "errno != "]
            .iter()
            .filter_map(|before| line.split(before).nth(1));
        let mut firsts = after.filter_map(|rest| rest.chars().next());
        firsts.any(|first| first.is_ascii_digit())
    };
    let mut seen = 0;
    for (path, lines) in shape::product() {
        let errnos = lines.iter().filter(|line| line.contains("errno"));
        for line in errnos {
            seen += 1;
            assert!(!is_naked(line), "{}: {line}", path.display());
        }
    }
    assert!(seen > 100, "the test has lost its grip");
    assert!(is_naked("errno: 11,") && is_naked("if e.errno == 17 {"));
}

/// First words in backticks of the rows of a Markdown table whose header starts with `header`, and
/// the rest of each row.
fn table(text: &str, header: &str) -> BTreeMap<String, String> {
    let lines = text
        .lines()
        .skip_while(|line| !line.starts_with(header))
        .take_while(|line| line.starts_with('|'))
        .skip(2);
    let row = |line: &str| {
        let (first, rest) = line
            .trim_start_matches("| ")
            .split_once(" |")
            .expect("two cells");
        (first.trim_matches('`').to_owned(), rest.to_owned())
    };
    let rows: Vec<(String, String)> = lines.map(row).collect();
    let (count, rows) = (rows.len(), rows.into_iter().collect::<BTreeMap<_, _>>());
    assert!(!rows.is_empty(), "no table {header}");
    assert_eq!(rows.len(), count, "a row of {header} stands there twice");
    rows
}

fn architecture() -> String {
    fs::read_to_string(project().join("ARCHITECTURE.md")).expect("ARCHITECTURE.md")
}

#[test]
fn the_architecture_page_has_the_same_edges() {
    let rows = table(&architecture(), "| crate | may use");
    let words = |cell: &str| -> BTreeSet<String> {
        cell.split('`')
            .skip(1)
            .step_by(2)
            .map(str::to_owned)
            .collect()
    };
    assert_eq!(
        rows.keys().cloned().collect::<BTreeSet<_>>(),
        EDGES.iter().map(|(name, _, _)| name.to_string()).collect()
    );
    for (name, may, in_tests) in EDGES {
        let all: Vec<&str> = may.iter().chain(in_tests).copied().collect();
        assert_eq!(
            words(rows[name].split(" | ").next().expect("a cell")),
            set(&all),
            "{name}"
        );
    }
}

#[test]
fn every_source_file_says_what_it_is() {
    let mut seen = 0;
    for path in files(&project().join("crates"), &["rs"]) {
        let text = fs::read_to_string(&path).expect("a source file");
        assert!(text.starts_with("//! "), "{}", path.display());
        seen += 1;
    }
    assert!(seen > 300, "the test has lost its grip");
}

/// Names of the kernel and of other programs that the pages speak of.
const NAMES_OF_OTHERS: [&str; 1] = ["RENAME_EXCHANGE"];

/// Whether something looks like the name of an item: words with `::` between them, and perhaps `()`
/// behind.
fn is_name(quoted: &str) -> bool {
    let name = quoted.trim_end_matches("()");
    !name.is_empty()
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || "_:".contains(c))
        && name.starts_with(|c: char| c.is_alphabetic() || c == '_')
}

/// All words of the project's sources, manifests and scripts, and the names of its source files.
fn words_of_the_code() -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    for folder in ["crates", "fuzz/targets", "bench"] {
        for path in files(&project().join(folder), &["rs", "toml", "py"]) {
            words.insert(
                path.file_stem()
                    .expect("a name")
                    .to_str()
                    .expect("text")
                    .to_owned(),
            );
            let text = fs::read_to_string(&path).expect("a text file");
            words.extend(
                text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_')
                    .map(str::to_owned),
            );
        }
    }
    words
}

#[test]
fn names_that_the_pages_speak_of_are_in_the_code() {
    let known = words_of_the_code();
    let mut seen = 0;
    let root =
        ["ARCHITECTURE.md", "CONTRIBUTING.md", "docs/formats.md"].map(|page| project().join(page));
    for page in root
        .into_iter()
        .chain(files(&project().join("docs/internals"), &["md"]))
    {
        let text = fs::read_to_string(&page).expect("a page");
        // Every other part lies between fences, and then between backticks.
        for quoted in text
            .split("```")
            .step_by(2)
            .flat_map(|prose| prose.split('`').skip(1).step_by(2))
            .filter(|quoted| is_name(quoted))
        {
            seen += 1;
            let lacking = quoted
                .trim_end_matches("()")
                .split("::")
                .find(|word| !known.contains(*word) && !NAMES_OF_OTHERS.contains(word));
            assert_eq!(lacking, None, "{}: `{quoted}`", page.display());
        }
    }
    assert!(seen > 200, "the test has lost its grip");
}

/// All packages that the project is built from on this kind of machine, as cargo describes them.
fn all_packages() -> Vec<Value> {
    let mut cargo = Command::new(std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let platform = format!("{}-unknown-linux-gnu", std::env::consts::ARCH);
    cargo
        .args([
            "metadata",
            "--format-version=1",
            "--offline",
            "--filter-platform",
            &platform,
        ])
        .current_dir(project());
    let output = cargo.output().expect("cargo starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let all: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    all["packages"].as_array().expect("a list").clone()
}

/// Whether one of the alternatives of a licence (SPDX, older ones with a slash) has nothing but
/// what is allowed.
fn is_allowed(licence: &str, allowed: &BTreeSet<String>) -> bool {
    let plain = licence.replace(['(', ')'], " ").replace('/', " OR ");
    // Where all of several hold, each is among the alternatives of one side or the other.
    plain
        .split(" AND ")
        .all(|all| all.split(" OR ").any(|one| allowed.contains(one.trim())))
}

#[test]
fn all_that_the_project_is_built_from_may_be_used_and_comes_from_where_crates_come_from() {
    let rules = fs::read_to_string(project().join("deny.toml")).expect("deny.toml");
    let list = rules
        .split("allow = [")
        .nth(1)
        .and_then(|rest| rest.split(']').next())
        .expect("the licences");
    let allowed: BTreeSet<String> = list
        .split('"')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect();
    let packages = all_packages();
    assert!(
        allowed.len() > 5 && packages.len() > 100,
        "the test has lost its grip"
    );
    for package in &packages {
        let (name, licence) = (
            &package["name"],
            package["license"].as_str().unwrap_or("none"),
        );
        assert!(is_allowed(licence, &allowed), "{name}: {licence}");
        let source = package["source"].as_str().unwrap_or("registry+ here");
        assert!(
            source.starts_with("registry+"),
            "{name} comes from {source}"
        );
    }
    for (licence, expected) in [
        ("MIT", true),
        ("GPL-3.0", false),
        ("GPL-2.0 OR MIT", true),
        ("MIT AND GPL-2.0", false),
        ("none", false),
    ] {
        assert_eq!(is_allowed(licence, &allowed), expected, "{licence}");
    }
}
