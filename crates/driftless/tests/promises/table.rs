//! The table of `docs/promises.md`: which option keeps which promise.

use super::common::driftless;
use super::common::pages::{quoted, read, rows};
use std::collections::BTreeSet;

/// The page, and its parts.
const PAGE: &str = "docs/promises.md";
const TABLE: &str = "## Options that say what is done";
const REASONS: &str = "## What is given up, and why";
const HOW: &str = "## Options that say how, not what";
/// The promises, in the order of the columns.
const PROMISES: [&str; 6] = ["P1", "P2", "P3", "P4", "P5", "P6"];
/// What a cell may say; to compare is to keep P2 whatever another option gives up.
const WORDS: [&str; 3] = ["keeps", "gives up", "compares"];

pub struct Table {
    /// An option, and what it says of each promise.
    rows: Vec<(String, Vec<String>)>,
    how: Vec<String>,
    /// Options with the promises that they give up, as the reasons have them.
    reasons: BTreeSet<(String, String)>,
}

impl Table {
    pub fn read() -> Table {
        let page = read(PAGE);
        let row = |cells: Vec<&str>| {
            let name = quoted(cells[0]).concat();
            (name, cells[1..].iter().map(ToString::to_string).collect())
        };
        let section = page.split_once(REASONS).expect(REASONS).1;
        let reasons = section.split("\n## ").next().unwrap_or_default();
        let reason = |line: &str| {
            let (promise, _) = line.split_once(", ")?.1.split_once(": ")?;
            Some((quoted(line).first()?.clone(), promise.to_owned()))
        };
        Table {
            rows: rows(&page, TABLE).into_iter().map(row).collect(),
            how: rows(&page, HOW)
                .iter()
                .flat_map(|cells| quoted(cells[0]))
                .collect(),
            reasons: reasons
                .lines()
                .filter(|line| line.starts_with("- "))
                .filter_map(reason)
                .collect(),
        }
    }

    /// The options that say what is done, in the order of the page.
    pub fn options(&self) -> impl Iterator<Item = &String> {
        self.rows.iter().map(|(name, _)| name)
    }

    pub fn gives_up(&self, option: &str, promise: &str) -> bool {
        self.cell(option, promise) == "gives up"
    }

    /// Whether an option has the content of every file compared.
    pub fn compares(&self, option: &str) -> bool {
        self.cell(option, "P2") == "compares"
    }

    fn cell(&self, option: &str, promise: &str) -> &str {
        let row = self.rows.iter().find(|(name, _)| name == option);
        let column = PROMISES.iter().position(|known| *known == promise);
        &row.expect("an option of the table").1[column.expect("a promise")]
    }

    /// Checks that each row has a word for each promise, and each promise given up its reason.
    pub fn check_words(&self) {
        let mut given_up = BTreeSet::new();
        for (name, cells) in &self.rows {
            assert_eq!(cells.len(), PROMISES.len(), "{name}");
            for (cell, promise) in cells.iter().zip(PROMISES) {
                assert!(WORDS.contains(&cell.as_str()), "{name}: {cell}");
                assert!(cell != "compares" || promise == "P2", "{name}: {promise}");
                if cell == "gives up" {
                    given_up.insert((name.clone(), promise.to_owned()));
                }
            }
        }
        assert_eq!(given_up, self.reasons, "what is given up, and the reasons");
    }

    /// Checks that each option of the binary stands on the page once, and no other does.
    pub fn check_options(&self) {
        let help = driftless().args(["sync", "--help"]).run().expect(0);
        let mut known: Vec<String> = help.stdout_text().lines().filter_map(long_option).collect();
        known.retain(|name| name != "--help");
        let mut named: Vec<String> = self.options().chain(&self.how).cloned().collect();
        known.sort();
        named.sort();
        assert_eq!(named, known, "options of {PAGE} and of the binary");
    }
}

/// The long name of the option that a line of the help begins with.
fn long_option(line: &str) -> Option<String> {
    let line = line.trim_start();
    let is_short = |line: &str| line.starts_with('-') && line.get(2..4) == Some(", ");
    let line = if is_short(line) { &line[4..] } else { line };
    let name = line.strip_prefix("--")?;
    let is_name = |letter: char| letter.is_ascii_alphanumeric() || letter == '-';
    let end = name.find(|letter| !is_name(letter)).unwrap_or(name.len());
    Some(format!("--{}", &name[..end]))
}
