//! The README and the pages of tasks: their length, and figures that stand in the benchmark.

use super::read;

/// Numbers of a text, as they stand there.
fn numbers(text: &str) -> Vec<&str> {
    let words = text.split(|c: char| !(c.is_ascii_digit() || c == '.' || c == ','));
    let words = words.map(|word| word.trim_matches(['.', ',']));
    words.filter(|word| !word.is_empty()).collect()
}

/// Numbers of a text that have a unit of time behind them.
fn times(text: &str) -> Vec<&str> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let timed = words.windows(2).filter(|pair| {
        let unit = pair[1].trim_matches(['(', ')', '.', ',']);
        ["s", "ms"].contains(&unit)
    });
    timed.flat_map(|pair| numbers(pair[0])).collect()
}

#[test]
fn figures_of_the_readme_are_those_of_the_benchmark() {
    let (readme, bench) = (read("README.md"), read("docs/bench.md"));
    let (_, why) = readme.split_once("\n## Why\n").expect("the section");
    let (why, _) = why.split_once("\n## ").expect("its end");
    let rows: Vec<Vec<&str>> = bench.lines().map(numbers).collect();
    let mut seen = 0;
    for item in why.split("\n- ") {
        let times = times(item);
        let is_row = |row: &Vec<&str>| times.iter().all(|time| row.contains(time));
        assert!(
            rows.iter().any(is_row),
            "no row of the benchmark has {times:?}"
        );
        seen += times.len();
    }
    assert!(seen >= 7, "only {seen} figures");
}

#[test]
fn times_are_read_with_their_units() {
    let text = "takes 1.4 s (rsync 7.23 s), 4,249 entries in 17.3 ms, 3 times.";
    assert_eq!(times(text), ["1.4", "7.23", "17.3"]);
    assert_eq!(numbers("| **1.4** | 4,249, 7. |"), ["1.4", "4,249", "7"]);
}

#[test]
fn pages_for_users_are_short() {
    let readme = read("README.md");
    // The bars of tables are no words.
    let is_word = |word: &&str| word.contains(char::is_alphanumeric);
    let words = |text: &str| text.split_whitespace().filter(is_word).count();
    assert!(readme.lines().count() <= 200 && words(&readme) <= 1400);
    let index = read("docs/README.md");
    let (tasks, _) = index.split_once("\n## Reference\n").expect("the reference");
    let rows = tasks.lines().filter(|line| line.starts_with("| ["));
    let mut seen = 0;
    for page in rows.filter_map(|row| row.split_once("](")?.1.split(')').next()) {
        let words = words(&read(&format!("docs/{page}")));
        assert!(words < 2000, "{page}: {words} words");
        seen += 1;
    }
    assert!(seen >= 16, "only {seen} pages");
}
