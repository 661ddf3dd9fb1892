//! The file of a job, as TOML, from what a configuration says.

use super::given::{Given, Said};
use super::regex::{self, Meaning};
use super::toml::{Table, list, text};
use super::trees::{self, Trees};
use super::{Component, broker, secret, units};
use driftless_model::{Rule, escape};
use std::collections::BTreeSet;

/// Kinds of changes (sr3_options(7), fileEvents).
const EVENTS: [&str; 6] = ["create", "delete", "link", "mkdir", "modify", "rmdir"];
/// Those that take something away.
const REMOVES: [&str; 2] = ["delete", "rmdir"];

const DELETE: &str = "with \"delete = true\" in the job, all that the source lacks goes from the \
                      replica, also what never came from this source";

/// Writes the job; what is not in it is told to `given`.
pub(super) fn write(given: &mut Given) -> String {
    let trees = trees::find(given);
    let mut top = top(given, &trees);
    flat(given);
    let base = trees.heard_as.as_deref().or(trees.told_as.as_deref());
    let rules = rules(given, base.unwrap_or_default());
    if !rules.is_empty() {
        top.set("filters", list(rules.iter().map(String::as_str)));
    }
    let mut limits = Table::default();
    if let Some(bytes) = number(given, "byteratemax") {
        limits.set("bytes_per_second", bytes);
    }
    if let Some(bytes) = number(given, "filesizemax") {
        top.set("max_size", bytes);
    }
    deletes(given, &mut top);
    let mut walk = Table::default();
    walk.set_text("every", trees.walk_every.as_deref());
    let keep = keep(given);
    followed(given);
    let mut out = String::new();
    top.append("", &mut out);
    walk.append("walk", &mut out);
    keep.append("keep", &mut out);
    limits.append("limits", &mut out);
    if given.component.is_subscriber() {
        let table = broker::announcements(given, trees.heard_as.as_deref());
        table.append("announcements", &mut out);
    }
    let table = broker::publish(given, &trees);
    table.append("publish", &mut out);
    out
}

/// What stands before all tables.
fn top(given: &Given, trees: &Trees) -> Table {
    let mut top = Table::default();
    let name = escape(secret::without(&given.name).as_bytes());
    let component = given.component.name();
    top.say(&format!(
        "From the configuration \"{name}\" of sr3 {component}."
    ));
    top.set("name", text(&given.job_name()));
    let (source, replica) = (trees.source.as_deref(), trees.replica.as_deref());
    top.set_or_ask(
        "source",
        source,
        "the tree that is read: a path or HOST:PATH",
    );
    top.set_or_ask(
        "replica",
        replica,
        "the tree that becomes equal: a path or HOST:PATH",
    );
    top.set("detect", list(trees.detect.iter().copied()));
    top
}

/// Whether entries keep their paths.
fn flat(given: &mut Given) {
    const FLAT: &str =
        "sr3 puts all files into one directory; a replica has the paths of the source";
    match given.one("mirror") {
        Some(said) if units::is_on(&said.value) == Some(true) => {}
        Some(said) => given.leave(&said, FLAT),
        // It is off there unless it is said to be on.
        None if given.component == Component::Subscribe => given.tell(0, "mirror", FLAT),
        None => {}
    }
}

/// The rules, from expressions in their order: the first that matches decides there as here.
fn rules(given: &mut Given, base: &str) -> Vec<String> {
    let expressions = given.in_order(&["accept", "reject"]);
    let mut rules = Vec::new();
    // What nothing matches is taken, unless it is said otherwise.
    let unmatched = given.value("acceptunmatched");
    let mut takes_rest = unmatched.and_then(|value| units::is_on(&value)) != Some(false);
    let mut is_over = false;
    for said in expressions {
        let is_accepted = said.option == "accept";
        let mut words = said.value.split_whitespace();
        let expression = words.next().unwrap_or_default();
        if words.next().is_some() {
            given.leave(
                &said,
                "what stands behind the expression: entries keep their names",
            );
        }
        match regex::meaning(expression, base) {
            _ if is_over => given.leave(&said, "an earlier line decides about all that is left"),
            Some(Meaning::All) => (takes_rest, is_over) = (is_accepted, true),
            Some(Meaning::Patterns(patterns)) if patterns.iter().all(|one| is_rule(one)) => {
                add_rules(&mut rules, &patterns, is_accepted)
            }
            _ => given.leave(&said, &by_hand(&said)),
        }
    }
    if !takes_rest {
        // Directories are entered, so that what is taken in them is found.
        rules.extend(["+ */", "- *"].map(str::to_owned));
    }
    rules
}

/// Whether a job takes a pattern, also as a line.
fn is_rule(pattern: &str) -> bool {
    let read = Rule::from_line(&format!("- {pattern}"));
    matches!(read, Ok(Some(_))) && !pattern.contains('\0')
}

fn by_hand(said: &Said) -> String {
    let sign = if said.option == "accept" { "+" } else { "-" };
    format!("no rule says the same: write it in filters, such as \"{sign} *.tmp\"")
}

/// What is rejected goes with all below it by its first pattern.
fn add_rules(rules: &mut Vec<String>, patterns: &[String], is_accepted: bool) {
    let (sign, count) = if is_accepted {
        ("+", patterns.len())
    } else {
        ("-", 1)
    };
    let new = patterns.iter().take(count);
    rules.extend(new.map(|pattern| format!("{sign} {pattern}")));
}

/// A number of bytes.
fn number(given: &mut Given, option: &'static str) -> Option<String> {
    let said = given.one(option)?;
    let bytes = units::bytes(&said.value);
    if bytes.is_none() && said.value != "0" {
        given.leave(&said, "no size: a whole number with k, M or G is one");
    }
    bytes.map(|bytes| bytes.to_string())
}

/// Whether what goes from the source goes from the replica, which only the user can say.
fn deletes(given: &mut Given, top: &mut Table) {
    let all_said = given.all("fileevents");
    let line = all_said.last().map_or(0, |said| said.line);
    let all = || EVENTS.map(str::to_owned).into();
    let events = all_said
        .iter()
        .fold(all(), |events: BTreeSet<String>, said| {
            change(&events, &said.value).unwrap_or_else(all)
        });
    if events.contains("delete") {
        top.say("delete = true  # see what was left out");
        given.tell(line, "fileEvents", DELETE);
    }
    let followed = EVENTS.iter().filter(|event| !REMOVES.contains(event));
    let lacks: Vec<&str> = followed
        .filter(|event| !events.contains(**event))
        .copied()
        .collect();
    if !lacks.is_empty() {
        let why = format!(
            "a mirror leaves no kind of change out: {}",
            lacks.join(", ")
        );
        given.tell(line, "fileEvents", &why);
    }
}

/// Kinds of changes: what is added to those so far, taken from them, or put in their place; `None`
/// for all there are.
fn change(so_far: &BTreeSet<String>, value: &str) -> Option<BTreeSet<String>> {
    let sign = value.chars().take_while(|c| "+-".contains(*c)).last();
    let named = value.trim_start_matches(['+', '-']).replace('|', ",");
    let named: BTreeSet<String> = named.split(',').map(str::to_owned).collect();
    let is_one =
        |word: &str| named.len() == 1 && named.iter().any(|one| one.eq_ignore_ascii_case(word));
    match sign {
        None if is_one("none") => Some(BTreeSet::new()),
        None | Some('+') if is_one("all") => None,
        None => Some(named),
        Some('+') => Some(so_far | &named),
        Some(_) => Some(so_far - &named),
    }
}

/// Attributes that are not kept.
fn keep(given: &mut Given) -> Table {
    let mut keep = Table::default();
    for (option, key) in [("permcopy", "mode"), ("timecopy", "times")] {
        let value = given.value(option);
        if value.and_then(|value| units::is_on(&value)) == Some(false) {
            keep.set(key, "false");
        }
    }
    keep
}

/// Options that are left out where they are on.
fn followed(given: &mut Given) {
    for (option, why) in [
        ("followsymlinks", "symbolic links are kept and not followed"),
        ("realpathpost", "symbolic links are kept and not followed"),
        (
            "nodupettl",
            "a change that is told twice is looked at once; nothing is left out",
        ),
    ] {
        let said = given.one(option);
        if let Some(said) = said.filter(|said| units::is_on(&said.value) != Some(false)) {
            given.leave(&said, why);
        }
    }
}
