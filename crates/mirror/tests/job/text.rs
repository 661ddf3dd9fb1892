//! The text itself: what is no TOML, line ends, and texts that mean harm.

use super::{TREES, errors, read, seconds};
use driftless_mirror::job::{FILE_BYTES_MAX, parse};
use std::path::Path;

#[test]
fn all_that_is_wrong_is_told_at_once_in_order() {
    let text =
        "soruce = 1\nreplica = \"/r\"\nrpo = \"x\"\n[walk]\nevery = 1\nnevery = 2\n[lists]\n";
    let keys: Vec<String> = read(text)
        .unwrap_err()
        .told()
        .iter()
        .map(|error| format!("{} {}", error.line, error.key))
        .collect();
    assert_eq!(
        keys,
        [
            "1 soruce",
            "1 source",
            "3 rpo",
            "5 walk.every",
            "6 walk.nevery",
            "7 lists"
        ]
    );
    let told = parse("x = 1\ny = 2", Path::new("a\n/b.toml")).unwrap_err();
    let lines: Vec<String> = told.to_string().lines().map(str::to_owned).collect();
    assert_eq!(lines.len(), 4);
    assert!(
        lines.iter().all(|line| line.starts_with("a\\n/b.toml:")),
        "{told}"
    );
}

#[test]
fn what_is_no_toml_is_told_with_its_line_and_nothing_is_guessed_behind_it() {
    for (text, begins) in [
        ("source = /s", "1:10: "),
        ("source = \"/s\nreplica = \"/r\"", "1:13: "),
        ("source \"/s\"", "1:"),
        ("[walk\nevery = 1", "1:"),
        ("a = \"\0\"", "1:6: "),
        ("a = 1 b = 2", "1:"),
        ("source = 'x'\r\nreplica = ", "2:"),
    ] {
        let all = errors(text);
        assert!(all[0].starts_with(begins), "{text:?}: {all:?}");
        assert!(
            !all.iter().any(|error| error.contains("missing")),
            "{text:?}: {all:?}"
        );
    }
    // All else can be told of a key that stands there twice.
    let all = errors(&format!("{TREES}rpo = \"5m\"\nrpo = \"6m\"\nrop = 1\n"));
    assert_eq!(all.len(), 2, "{all:?}");
    assert_eq!(all[0], "4:1: the key rpo is there twice: leave one");
    for (twice, key) in [
        ("[walk]\n[walk]\n", "walk"),
        ("walk.every = \"1h\"\n[walk]\n", "walk"),
        ("trash = \"1d\"\n[trash]\n", "trash"),
    ] {
        let all = errors(&format!("{TREES}delete = true\n{twice}"));
        let told = format!("the key {key} is there twice: leave one");
        assert!(all[0].ends_with(&told), "{twice}: {all:?}");
    }
}

#[test]
fn line_ends_and_a_byte_order_mark_change_nothing() {
    let plain = format!("{TREES}detect = [\n\"walk\",\n]\n[walk]\nevery = \"1h\"\n");
    let expected = read(&plain).unwrap();
    let windows = plain.replace('\n', "\r\n");
    assert_eq!(read(&windows).unwrap(), expected);
    assert_eq!(read(&format!("\u{feff}{windows}")).unwrap(), expected);
    for (text, place) in [
        ("\u{feff}rop = 1", "1:1: rop"),
        ("source = \"ü\"\r\nrop = 1\r\n", "2:1: rop"),
        ("keep = { \"ü\" = 1, x = 1 }", "1:19: keep.x"),
    ] {
        let all = errors(text);
        assert!(
            all.iter().any(|error| error.starts_with(place)),
            "{text:?}: {all:?}"
        );
    }
}

#[test]
fn a_hostile_text_is_refused_soon() {
    let huge = format!("{TREES}{}", "# a comment\n".repeat(1 << 20));
    assert!(huge.len() > 10 << 20);
    let all = errors(&huge);
    assert!(
        all[0].starts_with("1:1: it has ") && all.len() == 1,
        "{all:?}"
    );
    let fits = format!("{TREES}#{}", "x".repeat(FILE_BYTES_MAX - TREES.len() - 1));
    assert!(read(&fits).is_ok() && read(&format!("{fits}x")).is_err());

    let filled = |unit: &str| unit.repeat(FILE_BYTES_MAX / unit.len());
    let hostile = [
        format!("a = {}", "[".repeat(100_000)),
        format!("a = {}", "{a=".repeat(100_000)),
        format!("{}x = 1", "a.".repeat(100_000)),
        format!("[{}x]", "a.".repeat(100_000)),
        format!("{} = 1", "a".repeat(500_000)),
        format!("{TREES}name = \"{}\"", "a".repeat(500_000)),
        filled("a=1\n"),
        filled("[a]\n"),
        filled("[[a]]\n"),
        filled("\"\\u0000\"=1\n"),
        filled("="),
        filled("\"\"\""),
        (0..60_000)
            .map(|number| format!("k{number} = 1\n"))
            .collect(),
        (0..30_000)
            .map(|number| format!("[walk.k{number}]\na.b.c = 1\n"))
            .collect(),
    ];
    for text in hostile {
        let begun = std::time::Instant::now();
        let errors = read(&text).expect_err("hostile");
        let start: String = text.chars().take(20).collect();
        assert!(errors.told().len() <= 50, "{start}");
        assert!(
            begun.elapsed() < seconds(60),
            "{start}: {:?}",
            begun.elapsed()
        );
        let shown = errors.to_string();
        assert!(shown.len() < 100_000, "{start}: {} bytes", shown.len());
    }
    let many: String = (0..60).map(|number| format!("k{number} = 1\n")).collect();
    let errors = read(&format!("{many}{TREES}")).unwrap_err();
    assert_eq!((errors.told().len(), errors.untold()), (50, 10));
    assert!(errors.to_string().ends_with("10 more errors are not shown"));
}

/// Parts that mean something, to be put where they mean nothing.
const PARTS: [&str; 16] = [
    "[walk]\n",
    "[[trash]]\n",
    "trash",
    "keep",
    "=",
    "{",
    "}",
    "[",
    "]",
    "\"",
    ".",
    ",",
    "\n",
    "\u{0}",
    "\u{feff}",
    "ü",
];

#[test]
fn a_text_that_was_spoilt_is_a_job_or_is_told_of_within_its_lines() {
    let page = include_str!("../../../../docs/mirror.md");
    let examples: Vec<&str> = page
        .split("```toml")
        .skip(1)
        .filter_map(|rest| rest.split_once('\n')?.1.split("```").next())
        .collect();
    for seed in 0..3000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut text: Vec<char> = rng.choice(&examples).expect("some").chars().collect();
        for _ in 0..rng.usize(1..6) {
            let at = rng.usize(..text.len());
            let until = (at + rng.usize(..8)).min(text.len());
            let part = rng.choice(PARTS).expect("some");
            text.splice(at..until, part.chars());
        }
        let text: String = text.into_iter().collect();
        if let Err(errors) = read(&text) {
            let lines = text.lines().count().max(1);
            for error in errors.told() {
                let is_within = (1..=lines + 1).contains(&error.line) && error.column > 0;
                assert!(
                    is_within && !error.what.is_empty(),
                    "seed {seed}: {error}\n{text}"
                );
            }
        }
    }
}
