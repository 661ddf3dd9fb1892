//! How long functions and files are, and that each test program stands where a reader looks for it.

use super::{project, sources};
use std::fs;
use std::path::{Path, PathBuf};

/// Arguments that a function takes at most, those in tuples counted one by one: more of them are a
/// struct with a name. The lint of clippy (`too-many-arguments-threshold`) counts a tuple as one.
const ARGUMENTS_MAX: usize = 6;
/// Lines that a function has at most, and a file: longer ones are divided.
const FUNCTION_LINES_MAX: usize = 70;
const FILE_LINES_MAX: usize = 600;
/// Files that are still longer.
const FILES_TO_DIVIDE: [&str; 1] = ["crates/mirror/src/dirty.rs"];

/// The product's own source files, tests left out, each with its lines before those of its tests.
pub fn product() -> Vec<(PathBuf, Vec<String>)> {
    let is_product = |path: &Path| {
        let mut words = path.components().map(|word| word.as_os_str());
        !words.any(|word| {
            ["tests", "tests.rs", "testkit"]
                .iter()
                .any(|one| word == *one)
        })
    };
    let below = |path: &Path| path.strip_prefix(project()).expect("below").to_owned();
    let lines = |path: &Path| {
        let text = fs::read_to_string(path).expect("a source file");
        let of_product = text.split("#[cfg(test)]\nmod").next().expect("a part");
        of_product.lines().map(str::to_owned).collect()
    };
    let all = sources(&project().join("crates"));
    let ours = all.into_iter().filter(|path| is_product(&below(path)));
    ours.map(|path| (below(&path), lines(&path))).collect()
}

/// What follows `fn` on a line on which a function of more than one line begins.
fn begins(line: &str) -> Option<String> {
    let (before, after) = line.trim_start().split_once("fn ")?;
    let is_qualified = before.split_whitespace().all(|word| {
        word.starts_with("pub") || ["const", "async", "unsafe", "in", "crate)"].contains(&word)
    });
    (is_qualified && !line.ends_with(['}', ';'])).then(|| after.to_owned())
}

/// The functions that stand in lines as rustfmt lays them out, each with its number of lines: one
/// ends at the first brace that is as far in as its beginning.
fn functions(lines: &[String]) -> Vec<(String, usize)> {
    let length = |(at, line): (usize, &String)| {
        let name = begins(line)?;
        let depth = line.len() - line.trim_start().len();
        let end = format!("{}}}", " ".repeat(depth));
        let end = lines[at..].iter().position(|line| *line == end);
        Some((name, end? + 1))
    };
    lines.iter().enumerate().filter_map(length).collect()
}

/// Where the bracket that opens a text closes.
fn closing(text: &str) -> Option<usize> {
    let (mut depth, mut before) = (0, ' ');
    for (at, c) in text.char_indices() {
        match c {
            '(' | '[' | '{' | '<' => depth += 1,
            '>' if before == '-' => {}
            ')' | ']' | '}' | '>' => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return Some(at);
        }
        before = c;
    }
    None
}

/// The parts of a text between the commas that stand in no bracket.
fn parts(text: &str) -> Vec<&str> {
    let (mut found, mut rest, mut from) = (Vec::new(), text, 0);
    while let Some(at) = rest[from..]
        .find([',', '(', '[', '{', '<'])
        .map(|at| at + from)
    {
        if rest[at..].starts_with(',') {
            found.push(&rest[..at]);
            (rest, from) = (&rest[at + 1..], 0);
        } else {
            from = at + closing(&rest[at..]).map_or(1, |end| end + 1);
        }
    }
    found.push(rest);
    found.retain(|part| !part.trim().is_empty());
    found
}

/// How many arguments a function takes whose text this is, from its name on.
fn arguments(text: &str) -> usize {
    let open = text.find(['(', '<']).expect("arguments");
    let list = match &text[open..] {
        generic if generic.starts_with('<') => &generic[closing(generic).expect("it closes") + 1..],
        list => list,
    };
    let list = &list[1..closing(list).expect("it closes")];
    let of = |argument: &&str| match argument.trim() {
        tuple if tuple.starts_with('(') => {
            parts(&tuple[1..closing(tuple).expect("it closes")]).len()
        }
        own if own.ends_with("self") || own.starts_with("self:") => 0,
        _ => 1,
    };
    parts(list).iter().map(of).sum()
}

#[test]
fn functions_of_the_product_take_few_arguments() {
    let mut seen = 0;
    for (path, lines) in product() {
        for (at, _) in lines.iter().enumerate() {
            let Some(name) = begins(&lines[at]) else {
                continue;
            };
            let rest = lines[at + 1..].iter().map(|line| line.trim());
            let text = std::iter::once(name.as_str()).chain(rest.take(40));
            let count = arguments(&text.collect::<Vec<_>>().join(" "));
            seen += 1;
            let place = path.display();
            assert!(count <= ARGUMENTS_MAX, "{place}: {name} takes {count}");
        }
    }
    assert!(seen > 2500, "the test has lost its grip: {seen} functions");
}

#[test]
fn arguments_are_counted_in_tuples_too() {
    for (text, expected) in [
        ("a(&self) -> u8 {", 0),
        ("a<'a, F: Fn(u8) -> u8>(&'a mut self, b: F) {", 1),
        ("a((b, c): (u8, u8), d: &dyn Fn(u8, u8) -> u8, ) {", 3),
        ("a(self: Arc<Self>, (b, (c, d)): X, e: Map<u8, u8>) {", 3),
        ("a() {", 0),
    ] {
        assert_eq!(arguments(text), expected, "{text}");
    }
}

#[test]
fn functions_and_files_of_the_product_are_short() {
    let mut seen = 0;
    for (path, lines) in product() {
        let (length, place) = (lines.len(), path.display());
        let is_known = FILES_TO_DIVIDE.iter().any(|one| path.ends_with(one));
        assert!(
            is_known || length <= FILE_LINES_MAX,
            "{place} has {length} lines"
        );
        for (name, length) in functions(&lines) {
            seen += 1;
            assert!(
                length <= FUNCTION_LINES_MAX,
                "{place}: {name} has {length} lines"
            );
        }
    }
    assert!(seen > 2500, "the test has lost its grip: {seen} functions");
}

#[test]
fn a_long_function_is_seen() {
    let long = |lines: usize| {
        let body = "        work();\n".repeat(lines - 2);
        format!("impl A {{\n    pub(super) const fn long(&self) {{\n{body}    }}\n}}\n")
    };
    for lines in [5, 70, 71] {
        let text: Vec<String> = long(lines).lines().map(str::to_owned).collect();
        assert_eq!(functions(&text), [("long(&self) {".to_owned(), lines)]);
    }
}

#[test]
fn every_test_program_stands_in_the_table_of_contributing() {
    let text = fs::read_to_string(project().join("CONTRIBUTING.md")).expect("the page");
    let folder = project().join("crates/driftless/tests");
    let mut seen = 0;
    for entry in fs::read_dir(folder).expect("list") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().expect("a name").to_string_lossy();
        if name.ends_with(".rs") {
            seen += 1;
            let row = format!("`{name}`");
            let is_told = |line: &str| line.starts_with("| `") && line.contains(&row);
            assert!(
                text.lines().any(is_told),
                "{name} is not in CONTRIBUTING.md"
            );
        }
    }
    assert!(seen > 50, "the test has lost its grip");
}
