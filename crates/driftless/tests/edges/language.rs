//! The language of doc comments, messages, help, pages and names: the test counts breaches of the
//! rules of CONTRIBUTING.md for each crate. Their ceilings stand in `ceilings.tsv` and may only
//! fall, so a mended text stays mended.

use super::{files, project, shape};
use pulldown_cmark::{Event, Options, Parser, Tag, TagEnd};
use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet};
use std::io::Write;
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::{env, fs, iter, mem};

/// First words that name neither an action nor a thing.
const FIRST_WORDS: [&str; 15] = [
    "what", "who", "whose", "which", "where", "how", "why", "it", "that", "by", "of", "all", "one",
    "so", "nothing",
];
/// Pronouns that hide the actor.
const BANNED_WORDS: [&str; 3] = ["nobody", "somebody", "whoever"];
const SENTENCE_WORDS_MAX: usize = 25;
const TEST_NAME_WORDS_MAX: usize = 8;
/// Names of types that each crate may define.
const SHARED_TYPES: [&str; 2] = ["Error", "Options"];

const CEILINGS: &str = "crates/driftless/tests/edges/ceilings.tsv";
/// The variable of the environment with which the test lowers the ceilings to the counts.
const LOWER: &str = "DRIFTLESS_LOWER";
/// Characters of a text that a message quotes.
const EXCERPT: usize = 100;

/// The number of a line, and the text there.
type Place = (usize, String);
/// A check, and the crate or the page.
type Key = (String, String);
type Breaches = BTreeMap<Key, Vec<String>>;
type Ceilings = BTreeMap<Key, usize>;

/// A check of one file.
struct Check {
    name: &'static str,
    /// Whether a file is checked, by its path in the project.
    applies: fn(&str) -> bool,
    /// Returns the places of a text that break the rule.
    find: fn(&str) -> Vec<Place>,
}

/// Every check that needs no other file.
static CHECKS: [Check; 6] = [
    Check {
        name: "first-word",
        applies: |path| path.ends_with(".rs"),
        find: first_words,
    },
    Check {
        name: "banned-word",
        applies: |path| path.ends_with(".rs"),
        find: |text| banned_words([docs(text), messages(text)].concat()),
    },
    Check {
        name: "banned-word",
        applies: |path| path.ends_with(".md"),
        find: |text| banned_words(paragraphs(text)),
    },
    Check {
        name: "long-sentence",
        applies: |path| path.starts_with("crates/driftless/src/args"),
        find: |text| long_sentences(&docs(text)),
    },
    Check {
        name: "long-sentence",
        applies: |path| path == "README.md",
        find: |text| long_sentences(&paragraphs(text)),
    },
    Check {
        name: "long-test-name",
        applies: |path| path.ends_with(".rs"),
        find: long_test_names,
    },
];

/// Returns the number of the line in which a byte stands.
fn line_at(text: &str, at: usize) -> usize {
    text[..at].matches('\n').count() + 1
}

/// Returns the words of a text in lower case.
fn words(text: &str) -> impl Iterator<Item = String> {
    let words = text.split(|c: char| !c.is_alphanumeric());
    words
        .filter(|word| !word.is_empty())
        .map(|word| word.to_lowercase())
}

/// Returns the doc comments of a source, without their markers.
fn doc_comments(text: &str) -> Vec<Place> {
    let (mut found, mut before) = (Vec::<Place>::new(), None);
    for (at, line) in text.lines().enumerate() {
        let line = line.trim_start();
        let marker = ["///", "//!"].into_iter().find(|one| line.starts_with(one));
        if let Some(marker) = marker {
            if before != Some(marker) {
                found.push((at + 1, String::new()));
            }
            let doc = &mut found.last_mut().expect("one has begun").1;
            let rest = &line[marker.len()..];
            doc.push_str(rest.strip_prefix(' ').unwrap_or(rest));
            doc.push('\n');
        }
        before = marker;
    }
    found
}

/// Tells whether a tag stands within a paragraph.
fn is_inline(tag: TagEnd) -> bool {
    use TagEnd::{Emphasis, Image, Link, Strikethrough, Strong};
    matches!(tag, Emphasis | Image | Link | Strikethrough | Strong)
}

/// Returns the paragraphs, headings, items and cells of a Markdown text. A code span is one word;
/// code blocks and comments are left out.
fn paragraphs(markdown: &str) -> Vec<Place> {
    let (mut found, mut is_code) = (vec![(1, String::new())], false);
    let events = Parser::new_ext(markdown, Options::ENABLE_TABLES).into_offset_iter();
    for (event, range) in events {
        let text = &mut found.last_mut().expect("one has begun").1;
        match event {
            Event::Text(part) if !is_code => text.push_str(&part),
            Event::Code(_) => text.push_str("CODE"),
            Event::SoftBreak | Event::HardBreak => text.push(' '),
            Event::Start(tag) if !is_inline(tag.to_end()) => {
                is_code = matches!(tag, Tag::CodeBlock(_));
                found.push((line_at(markdown, range.start), String::new()));
            }
            Event::End(tag) if !is_inline(tag) => {
                is_code = false;
                found.push((line_at(markdown, range.end), String::new()));
            }
            _ => {}
        }
    }
    found.retain(|(_, text)| !text.trim().is_empty());
    found
}

/// Returns the paragraphs of the doc comments of a source.
fn docs(text: &str) -> Vec<Place> {
    let of = |(first, doc): Place| {
        let all = paragraphs(&doc).into_iter();
        all.map(move |(line, text)| (first + line - 1, text))
    };
    doc_comments(text).into_iter().flat_map(of).collect()
}

/// Returns the messages of the errors of a source.
fn messages(text: &str) -> Vec<Place> {
    // In two parts, so that this line is none of them.
    let begins = text.match_indices(concat!("#[", "error("));
    let of = |(at, _): (usize, &str)| {
        let rest = &text[at..];
        let message = rest.split(")]").next().unwrap_or(rest);
        (line_at(text, at), message.to_owned())
    };
    begins.map(of).collect()
}

/// Finds doc comments whose first word says nothing.
fn first_words(text: &str) -> Vec<Place> {
    let of = |(line, doc): Place| {
        let (_, first) = paragraphs(&doc).into_iter().next()?;
        let word = words(&first).next()?;
        FIRST_WORDS
            .contains(&word.as_str())
            .then_some((line, first))
    };
    doc_comments(text).into_iter().filter_map(of).collect()
}

/// Finds banned words; each is a place of its own.
fn banned_words(prose: Vec<Place>) -> Vec<Place> {
    let of = |place: Place| {
        let count = words(&place.1)
            .filter(|word| BANNED_WORDS.contains(&word.as_str()))
            .count();
        iter::repeat_n(place, count)
    };
    prose.into_iter().flat_map(of).collect()
}

/// Finds sentences that have too many words. A dash or a sign alone is no word.
fn long_sentences(prose: &[Place]) -> Vec<Place> {
    let is_last = |word: &&str| {
        let word = word.trim_end_matches([')', '"']);
        word.ends_with(['.', '?', '!'])
    };
    let is_long = |sentence: &&[&str]| {
        let words = sentence
            .iter()
            .filter(|word| word.contains(char::is_alphanumeric));
        words.count() > SENTENCE_WORDS_MAX
    };
    let mut found = Vec::new();
    for (line, text) in prose {
        let words: Vec<&str> = text.split_whitespace().collect();
        let long = words.split_inclusive(is_last).filter(is_long);
        found.extend(long.map(|sentence| (*line, sentence.join(" "))));
    }
    found
}

/// Finds tests whose names have too many words.
fn long_test_names(text: &str) -> Vec<Place> {
    let (mut found, mut is_test) = (Vec::new(), false);
    for (at, line) in text.lines().enumerate() {
        let line = line.trim_start();
        is_test |= line == "#[test]";
        let Some(rest) = line.strip_prefix("fn ") else {
            continue;
        };
        let name = rest.split('(').next().unwrap_or(rest);
        let count = name.split('_').filter(|word| !word.is_empty()).count();
        if mem::take(&mut is_test) && count > TEST_NAME_WORDS_MAX {
            found.push((at + 1, name.to_owned()));
        }
    }
    found
}

/// Returns the name of the type that a line defines, if it is one of a module.
fn type_name(line: &str) -> Option<&str> {
    let line = match line.strip_prefix("pub(") {
        Some(rest) => rest.split_once(") ")?.1,
        None => line.strip_prefix("pub ").unwrap_or(line),
    };
    let (keyword, rest) = line.split_once(' ')?;
    let name = rest
        .split(|c: char| !(c.is_alphanumeric() || c == '_'))
        .next()?;
    let is_type = ["struct", "enum", "union", "trait", "type"].contains(&keyword);
    (is_type && !SHARED_TYPES.contains(&name)).then_some(name)
}

/// Finds types that have the name of another one, among files with their paths.
fn shared_type_names(files: &[(String, String)]) -> Vec<(String, Place)> {
    let mut places: BTreeMap<&str, Vec<(&str, usize)>> = BTreeMap::new();
    for (path, text) in files {
        for (at, line) in text.lines().enumerate() {
            if let Some(name) = type_name(line) {
                places.entry(name).or_default().push((path, at + 1));
            }
        }
    }
    let mut found = Vec::new();
    for (name, places) in places.into_iter().filter(|(_, all)| all.len() > 1) {
        let of = |(path, line): (&str, usize)| (path.to_owned(), (line, name.to_owned()));
        found.extend(places.into_iter().map(of));
    }
    found
}

/// Returns the paths of the sources and pages of the project.
fn texts() -> Vec<String> {
    let root = project();
    let pages = [
        "README.md",
        "ARCHITECTURE.md",
        "CONTRIBUTING.md",
        "CHANGELOG.md",
    ];
    let below = |path: PathBuf| {
        let path = path.strip_prefix(&root).expect("below");
        path.to_str().expect("text").to_owned()
    };
    let found = files(&root.join("crates"), &["rs"])
        .into_iter()
        .chain(files(&root.join("docs"), &["md"]))
        .map(below);
    let mut paths: Vec<String> = found.chain(pages.map(String::from)).collect();
    paths.sort();
    paths
}

/// Returns the crate of a source, `docs`, or the name of a page beside them.
fn part(path: &str) -> &str {
    let mut words = path.split('/');
    let first = words.next().unwrap_or(path);
    match words.next() {
        Some(name) if first == "crates" => name,
        _ => first,
    }
}

/// Makes every check of every file.
fn breaches() -> Breaches {
    let mut found = Breaches::new();
    let mut add = |check: &str, path: &str, (line, text): Place| {
        let excerpt: String = text.chars().take(EXCERPT).collect();
        let key = (check.to_owned(), part(path).to_owned());
        let places = found.entry(key).or_default();
        places.push(format!("{path}:{line}: {}", excerpt.trim_end()));
    };
    for path in texts() {
        let text = fs::read_to_string(project().join(&path)).expect("a text");
        for check in CHECKS.iter().filter(|check| (check.applies)(&path)) {
            for place in (check.find)(&text) {
                add(check.name, &path, place);
            }
        }
    }
    let product: Vec<(String, String)> = shape::product()
        .into_iter()
        .map(|(path, lines)| (path.display().to_string(), lines.join("\n")))
        .collect();
    for (path, place) in shared_type_names(&product) {
        add("type-name", &path, place);
    }
    found
}

fn parse(table: &str) -> Ceilings {
    let row = |line: &str| {
        let cells: Vec<&str> = line.split('\t').collect();
        let [check, part, count] = cells[..] else {
            panic!("{CEILINGS}: not three cells: {line:?}");
        };
        let key = (check.to_owned(), part.to_owned());
        (key, count.parse().expect("a number"))
    };
    table.lines().skip(1).map(row).collect()
}

fn print(ceilings: &Ceilings) -> String {
    let rows = ceilings.iter();
    let rows = rows.map(|((check, part), count)| format!("{check}\t{part}\t{count}\n"));
    iter::once("check\tcrate\tcount\n".to_owned())
        .chain(rows)
        .collect()
}

/// Returns a message for each count that is not its ceiling.
fn judge(breaches: &Breaches, ceilings: &Ceilings) -> Vec<String> {
    let keys: BTreeSet<&Key> = breaches.keys().chain(ceilings.keys()).collect();
    let of = |key: &Key| {
        let ceiling = ceilings.get(key).copied().unwrap_or(0);
        let places = breaches.get(key).map(Vec::as_slice).unwrap_or_default();
        let (check, part) = key;
        let counts = format!("{part}: {check}: {}, ceiling {ceiling}", places.len());
        match places.len().cmp(&ceiling) {
            Ordering::Greater => Some(format!("{counts}:\n  {}", places.join("\n  "))),
            Ordering::Less => Some(format!("{counts}: lower it with {LOWER}=1")),
            Ordering::Equal => None,
        }
    };
    keys.into_iter().filter_map(of).collect()
}

/// Returns the ceilings at the counts, none higher than before. Without ceilings, each count is one.
fn lowered(breaches: &Breaches, before: Option<&Ceilings>) -> Ceilings {
    let of = |(key, places): (&Key, &Vec<String>)| {
        let ceiling = before.map(|before| before.get(key).copied().unwrap_or(0));
        let count = ceiling.map_or(places.len(), |ceiling| ceiling.min(places.len()));
        (count > 0).then(|| (key.clone(), count))
    };
    breaches.iter().filter_map(of).collect()
}

#[test]
fn breaches_of_the_language_rules_only_fall() {
    let (found, path) = (breaches(), project().join(CEILINGS));
    let mut ceilings = fs::read_to_string(&path).ok().map(|table| parse(&table));
    if env::var_os(LOWER).is_some() {
        let lower = lowered(&found, ceilings.as_ref());
        fs::write(&path, print(&lower)).expect("it is written");
        ceilings = Some(lower);
    }
    let ceilings = ceilings.unwrap_or_else(|| panic!("no {CEILINGS}: make it with {LOWER}=1"));
    let wrong = judge(&found, &ceilings);
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Returns the lines in which a check finds something.
fn lines_found(check: &str, path: &str, text: &str) -> Vec<usize> {
    let mut checks = CHECKS.iter();
    let check = checks
        .find(|one| one.name == check && (one.applies)(path))
        .expect("a check of such files");
    let places = (check.find)(text);
    places.into_iter().map(|(line, _)| line).collect()
}

#[test]
fn each_check_finds_a_breach() {
    let (source, help) = ("crates/a/tests/b.rs", "crates/driftless/src/args/c.rs");
    let error = concat!("\n#[", "error(\"{0}: somebody\\\n has it\")]");
    let long = "word ".repeat(SENTENCE_WORDS_MAX);
    let docs = |sentence: &str| format!("/// A word.\n///\n/// {sentence}more.\n");
    let name = "a_b_c_d_e_f_g_h";
    for (check, path, text, expected) in [
        (
            "first-word",
            source,
            "//! What.\n/// It.\n",
            &[1usize, 2][..],
        ),
        ("first-word", source, "/// Reads\n/// what is.\n", &[]),
        ("first-word", source, "/// `all`\n// What\n", &[]),
        ("banned-word", source, "/// To\n/// nobody's\n", &[1]),
        ("banned-word", source, error, &[2]),
        ("banned-word", source, "// whoever\nnobody", &[]),
        (
            "banned-word",
            "docs/a.md",
            "# A\n\nSomebody, nobody",
            &[3, 3],
        ),
        ("banned-word", "docs/a.md", "`nobody`\n<!-- nobody -->", &[]),
        ("long-sentence", help, &docs(&long), &[3]),
        ("long-sentence", help, &docs(&long[5..]), &[]),
        (
            "long-sentence",
            "README.md",
            &format!("- {long}\n  more"),
            &[1],
        ),
        ("long-sentence", "README.md", &format!("{long}? More."), &[]),
        (
            "long-test-name",
            source,
            &format!("#[test]\nfn {name}_i() {{"),
            &[2],
        ),
        (
            "long-test-name",
            source,
            &format!("#[test]\nfn {name}() {{"),
            &[],
        ),
        ("long-test-name", source, &format!("fn {name}_i() {{"), &[]),
    ] {
        assert_eq!(lines_found(check, path, text), expected, "{check}: {text}");
    }
}

#[test]
fn types_of_one_name_are_found() {
    let file = |path: &str, text: &str| (path.to_owned(), text.to_owned());
    let files = [
        file("a", "pub(crate) struct Seat(u8);\nenum Error {}"),
        file("b", "\ntype Seat<T> = Vec<T>;\npub enum Error {}"),
        file("c", "    struct Seat;\npub fn seat(r#type: Seat) {"),
    ];
    let seat = |path: &str, line| (path.to_owned(), (line, "Seat".to_owned()));
    assert_eq!(shared_type_names(&files), [seat("a", 1), seat("b", 2)]);
}

#[test]
fn prose_is_read_without_its_code() {
    let page = "A *b*\n`c`.\n\n```sh\nnobody\n```\n\n| d | [e](f) |\n| --- | --- |\n| g | h |\n";
    let found = paragraphs(page);
    let expected = [(1, "A b CODE."), (8, "d"), (8, "e"), (10, "g"), (10, "h")];
    assert_eq!(found, expected.map(|(line, text)| (line, text.to_owned())));
}

#[test]
fn ceilings_fall_and_never_rise() {
    let key = || ("check".to_owned(), "part".to_owned());
    let found = |count: usize| Breaches::from([(key(), vec!["place".to_owned(); count])]);
    let ceilings = parse("check\tcrate\tcount\ncheck\tpart\t2\n");
    assert_eq!(parse(&print(&ceilings)), ceilings);
    assert!(judge(&found(2), &ceilings).is_empty());
    for (breaches, expected) in [
        (
            found(3),
            "part: check: 3, ceiling 2:\n  place\n  place\n  place",
        ),
        (found(1), "part: check: 1, ceiling 2: lower it"),
        (Breaches::new(), "part: check: 0, ceiling 2: lower it"),
    ] {
        let wrong = judge(&breaches, &ceilings);
        assert!(wrong[0].starts_with(expected), "{wrong:?}");
        assert_eq!(wrong.len(), 1, "{wrong:?}");
    }
    assert_eq!(lowered(&found(1), Some(&ceilings))[&key()], 1);
    assert_eq!(lowered(&found(3), Some(&ceilings))[&key()], 2);
    assert_eq!(lowered(&found(3), None)[&key()], 3);
    assert!(lowered(&found(3), Some(&Ceilings::new())).is_empty());
}

/// Tells whether `.ci/subjects` accepts the subject of a commit.
fn accepts(subject: &str) -> bool {
    let mut check = Command::new(project().join(".ci/subjects"));
    let check = check.arg("-").stdin(Stdio::piped()).stderr(Stdio::null());
    let mut check = check.spawn().expect("it starts");
    let mut input = check.stdin.take().expect("a pipe");
    writeln!(input, "{subject}").expect("it reads");
    drop(input);
    check.wait().expect("it ends").success()
}

#[test]
fn subjects_of_commits_begin_with_a_verb() {
    let longest = format!("engine: pass {}", "x".repeat(59));
    for subject in ["mirror: keep a file", "dry run, docs: need less", &longest] {
        assert!(accepts(subject), "{subject}");
    }
    for subject in [
        "fixup",
        "mirror: keep",
        "keep a file",
        "mirror: what was deleted is kept",
        "mirror: keeps a file",
        "mirror: deleted files",
        "mirror: adding files",
        "mirror: Keep a file",
        &format!("{longest}x"),
    ] {
        assert!(!accepts(subject), "{subject}");
    }
}
