//! Patterns against a model of their meaning that shares nothing with the product: braces are
//! multiplied out as text, then names are matched one by one, character by character, by trying
//! everything.

use driftless_model::{Filter, Rule};
use fastrand::Rng;

/// Patterns that are tried; the seed is fixed, so a failure repeats.
const PATTERNS: usize = 10_000;
const NAMES_EACH: usize = 12;
/// What patterns and names are drawn from: plain characters twice, since they are what matches.
const SIGNS: &str = "aabbäüé.-*?[]!^{},\\/**";
const PIECES: [&[u8]; 10] = [
    b"a",
    b"b",
    b"a",
    "ä".as_bytes(),
    "ü".as_bytes(),
    "é".as_bytes(),
    b".",
    b"-",
    b"\xff",
    b"\xc3",
];

fn matches(pattern: &str, path: &[u8]) -> Option<bool> {
    let rules = vec![Rule::new(false, pattern).ok()?];
    Some(
        !Filter {
            rules,
            ..Filter::default()
        }
        .takes(path, false),
    )
}

/// Characters of a name; a byte that is no UTF-8 is a negative number, so no character of a pattern
/// equals it.
fn characters(name: &[u8]) -> Vec<i64> {
    let chunks = name.utf8_chunks();
    let of_chunk = |chunk: std::str::Utf8Chunk<'_>| {
        let valid: Vec<i64> = chunk
            .valid()
            .chars()
            .map(|c| i64::from(u32::from(c)))
            .collect();
        valid
            .into_iter()
            .chain(chunk.invalid().iter().map(|byte| -i64::from(*byte)))
            .collect::<Vec<i64>>()
    };
    chunks.flat_map(of_chunk).collect()
}

/// The end of a set that begins at `at` with its `[`: the place behind its `]`.
fn set_end(pattern: &[char], at: usize) -> usize {
    let mut end = at + 1;
    end += usize::from(matches!(pattern[end], '!' | '^'));
    end += 1;
    while pattern[end] != ']' {
        end += 1;
    }
    end + 1
}

/// The texts that the braces of a pattern amount to.
fn spelled_out(pattern: &[char]) -> Vec<Vec<char>> {
    let mut at = 0;
    while at < pattern.len() {
        match pattern[at] {
            '\\' => at += 2,
            '[' => at = set_end(pattern, at),
            '{' => return with_first_braces(pattern, at),
            _ => at += 1,
        }
    }
    vec![pattern.to_vec()]
}

fn with_first_braces(pattern: &[char], open: usize) -> Vec<Vec<char>> {
    let (mut at, mut depth, mut starts) = (open + 1, 1, vec![open + 1]);
    while depth > 0 {
        match pattern[at] {
            '\\' => at += 1,
            '[' => at = set_end(pattern, at) - 1,
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 1 => starts.push(at + 1),
            _ => {}
        }
        at += 1;
    }
    let ends = starts.iter().skip(1).chain([&at]).map(|next| next - 1);
    let choices: Vec<&[char]> = starts
        .iter()
        .zip(ends)
        .map(|(start, end)| &pattern[*start..end])
        .collect();
    choices
        .iter()
        .flat_map(|choice| spelled_out(&[&pattern[..open], choice, &pattern[at..]].concat()))
        .collect()
}

fn model(pattern: &str, path: &[u8]) -> bool {
    let body: Vec<char> = pattern
        .strip_prefix('/')
        .unwrap_or(pattern)
        .chars()
        .collect();
    let texts = spelled_out(&body);
    let whole = pattern.starts_with('/') || texts.iter().any(|text| names_of(text).len() > 1);
    let names: Vec<Vec<i64>> = path.split(|byte| *byte == b'/').map(characters).collect();
    let from = if whole { 0 } else { names.len() - 1 };
    texts
        .iter()
        .any(|text| path_matches(&names_of(text), &names[from..]))
}

/// The parts of a pattern without braces between its slashes.
fn names_of(pattern: &[char]) -> Vec<Vec<char>> {
    let (mut names, mut at) = (vec![Vec::new()], 0);
    while at < pattern.len() {
        let next = match pattern[at] {
            '\\' if pattern[at + 1] == '/' => at + 1,
            '\\' => at + 2,
            '[' => set_end(pattern, at),
            _ => at + 1,
        };
        if pattern[at] == '/' {
            names.push(Vec::new());
        } else if pattern[at] != '\\' || next == at + 2 {
            names
                .last_mut()
                .expect("one at least")
                .extend(&pattern[at..next]);
        }
        at = next;
    }
    names
}

fn path_matches(pattern: &[Vec<char>], names: &[Vec<i64>]) -> bool {
    let Some((first, rest)) = pattern.split_first() else {
        return names.is_empty();
    };
    if *first == ['*', '*'] {
        let least = usize::from(rest.is_empty());
        return (least..=names.len()).any(|skipped| path_matches(rest, &names[skipped..]));
    }
    names
        .split_first()
        .is_some_and(|(name, below)| name_matches(first, name) && path_matches(rest, below))
}

fn name_matches(pattern: &[char], name: &[i64]) -> bool {
    let Some(sign) = pattern.first() else {
        return name.is_empty();
    };
    let one = |taken: usize, fits: &dyn Fn(i64) -> bool| {
        name.split_first()
            .is_some_and(|(c, rest)| fits(*c) && name_matches(&pattern[taken..], rest))
    };
    match sign {
        '*' => (0..=name.len()).any(|skipped| name_matches(&pattern[1..], &name[skipped..])),
        '?' => one(1, &|_| true),
        '[' => {
            let end = set_end(pattern, 0);
            one(end, &|c| in_set(&pattern[1..end - 1], c))
        }
        '\\' => one(2, &|c| c == i64::from(u32::from(pattern[1]))),
        sign => one(1, &|c| c == i64::from(u32::from(*sign))),
    }
}

fn in_set(set: &[char], c: i64) -> bool {
    let negated = matches!(set[0], '!' | '^');
    let set = &set[usize::from(negated)..];
    let (mut at, mut found) = (0, false);
    while at < set.len() {
        let is_range = at + 2 < set.len() && set[at + 1] == '-';
        let last = if is_range { set[at + 2] } else { set[at] };
        found |= (i64::from(u32::from(set[at]))..=i64::from(u32::from(last))).contains(&c);
        at += if is_range { 3 } else { 1 };
    }
    found != negated
}

fn draw_pattern(random: &mut Rng) -> String {
    let signs: Vec<char> = SIGNS.chars().collect();
    (0..random.usize(1..9))
        .map(|_| signs[random.usize(..signs.len())])
        .collect()
}

fn draw_path(random: &mut Rng) -> Vec<u8> {
    let mut name = |_| {
        (0..random.usize(1..4))
            .flat_map(|_| PIECES[random.usize(..PIECES.len())])
            .copied()
            .collect::<Vec<u8>>()
    };
    let names: Vec<Vec<u8>> = (0..3)
        .map(&mut name)
        .filter(|name| name != b"." && name != b"..")
        .collect();
    let depth = random.usize(..=names.len()).max(1);
    names
        .into_iter()
        .take(depth)
        .collect::<Vec<_>>()
        .join(&b'/')
}

#[test]
fn random_patterns_mean_what_an_independent_model_says() {
    let mut random = Rng::with_seed(71);
    let (mut accepted, mut matched) = (0, 0);
    for _ in 0..PATTERNS {
        let pattern = draw_pattern(&mut random);
        if pattern.ends_with('/') {
            continue;
        }
        for path in (0..NAMES_EACH)
            .map(|_| draw_path(&mut random))
            .filter(|path| !path.is_empty())
        {
            let Some(said) = matches(&pattern, &path) else {
                break;
            };
            assert_eq!(
                said,
                model(&pattern, &path),
                "pattern {pattern:?}, path {}",
                path.escape_ascii()
            );
            accepted += 1;
            matched += usize::from(said);
        }
    }
    assert!(
        accepted > PATTERNS && matched > PATTERNS / 10,
        "{accepted} judged, {matched} of them matches"
    );
}

#[test]
fn text_is_matched_as_text() {
    let cases: [(&str, &str, bool); 20] = [
        ("[ä]*", "über", false),
        ("[äÄ]*", "ärzte", true),
        ("[a-zä-ü]?", "öl", true),
        ("?.c", "é.c", true),
        ("??.c", "é.c", false),
        ("/data[!.]x", "data/x", false),
        ("/data[.-0]x", "data/x", false),
        ("/data[.-0]x", "data.x", true),
        ("core{,.gz}", "core", true),
        ("core{,.gz}", "core.gz", true),
        ("{a,{b,c}d}", "cd", true),
        ("**", "a/b", true),
        ("/a/***", "a/b/c", true),
        ("/a/***", "a", false),
        ("/a/***", "b/a/c", false),
        ("a{/***,b}", "a/c", true),
        ("/***", "a", true),
        ("***", "a/b", true),
        ("a\\ \\#\\!", "a #!", true),
        ("[]-]", "]", true),
    ];
    for (pattern, path, expected) in cases {
        assert_eq!(
            matches(pattern, path.as_bytes()),
            Some(expected),
            "{pattern} on {path}"
        );
    }
}

#[test]
fn three_stars_match_directories_and_no_files() {
    for (is_dir, taken) in [(true, false), (false, true)] {
        let filter = Filter {
            rules: vec![Rule::new(false, "/a/***").expect("a rule")],
            ..Filter::default()
        };
        assert_eq!(filter.takes(b"a", is_dir), taken, "{is_dir}");
    }
}

#[test]
fn only_patterns_that_float_are_ambiguous() {
    for (pattern, is_ambiguous) in [
        ("a/b", true),
        ("a/", false),
        ("/a/b", false),
        ("**/a/b", false),
        ("a", false),
        ("a/**", true),
        ("{**/,}a", true),
        ("{**/a,**/b}/c", false),
    ] {
        let filter = Filter {
            rules: vec![Rule::new(false, pattern).expect("a rule")],
            ..Filter::default()
        };
        assert_eq!(filter.ambiguity().is_some(), is_ambiguous, "{pattern}");
    }
}

#[test]
fn each_byte_that_is_no_utf8_is_one_character() {
    assert_eq!(matches("?x", b"\xc3x"), Some(true));
    assert_eq!(matches("??x", b"\xff\xfex"), Some(true));
    assert_eq!(matches("[!a]", b"\xff"), Some(true));
    assert_eq!(matches("[ä-ü]", b"\xc3"), Some(false));
}

#[test]
fn a_pattern_that_can_never_match_is_refused_with_the_reason() {
    let cases = [
        ("./scratch/", "\".\""),
        ("a/./b", "\".\""),
        ("a/../b", "\"..\""),
        ("..", "\"..\""),
        ("scratch//", "empty"),
        ("//scratch", "empty"),
        ("a//b", "empty"),
        ("{/a,b}", "empty"),
        ("{a/,b}", "empty"),
        ("{a,}", "empty"),
        ("[[:digit:]]*", "[0-9]"),
        ("a[/]b", "slash"),
        ("a\0b", "NUL"),
        ("[z-a]", "range"),
        ("a\\", "\\"),
        ("a}", "closes nothing"),
        ("{a", "not closed"),
        ("a**b", "stands alone"),
        ("**a/b", "stands alone"),
        ("/***/b", "at the end"),
        ("/a/****", "three stars"),
        ("!a", "--include"),
        ("+ a", "--include"),
        ("- a", "--exclude"),
        ("a\\b", "backslash"),
        ("[\\]]", "backslash"),
        ("{a}", "single alternative"),
        ("{{a}}", "regular expressions"),
        ("[a", "not closed"),
        ("/", "empty"),
    ];
    for (pattern, reason) in cases {
        let refusal = Rule::new(false, pattern).expect_err(pattern).to_string();
        assert!(refusal.contains(reason), "{pattern}: {refusal}");
    }
}

#[test]
fn braces_and_stars_cost_no_more_than_a_bound() {
    assert!(Rule::new(false, &"{a,b}".repeat(9)).is_ok());
    assert!(Rule::new(false, &"{a,b}".repeat(40)).is_err());
    assert!(Rule::new(false, &"{".repeat(100_000)).is_err());
    assert_eq!(
        matches(&"*a".repeat(100), "a".repeat(255).as_bytes()),
        Some(true)
    );
    assert_eq!(
        matches(&"*a".repeat(100), "b".repeat(255).as_bytes()),
        Some(false)
    );
}
