//! Commands and the changes that they come to, in tables.

use super::super::encode::{command, commands, header, path, snapshot, stream};
use super::*;

/// A change in words: path, `below` for a subtree, origin or ranges.
fn told(change: &Change) -> String {
    let scope = if change.scope == Scope::Subtree {
        " below"
    } else {
        ""
    };
    let hint = match &change.hint {
        None => String::new(),
        Some(Hint::MovedFrom(from)) => format!(" from {from}"),
        Some(Hint::Ranges(ranges)) => format!(" {ranges:?}"),
    };
    format!("{}{scope}{hint}", change.path)
}

fn check(name: &str, lines: &[&str], expected: &[&str]) {
    let found = changes(&stream(lines)[..]).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut found: Vec<String> = found.iter().map(told).collect();
    found.sort_unstable();
    assert_eq!(found, expected, "{name}");
}

#[test]
fn what_is_made_changed_or_removed_is_told_where_it_stands() {
    check("nothing", &[], &[]);
    check(
        "file",
        &[
            "mkfile o257-9-0",
            "rename o257-9-0 a",
            "update a 0 9",
            "truncate a 9",
            "utimes a",
            "utimes /",
        ],
        &[".", "a"],
    );
    check(
        "directory",
        &[
            "mkdir o1-9-0",
            "rename o1-9-0 d",
            "mkfile o2-9-0",
            "rename o2-9-0 d/f",
            "mkfifo d/p",
        ],
        &["d", "d/f", "d/p"],
    );
    check("removed", &["unlink d/f", "rmdir d"], &["d below"]);
    check(
        "removed in a directory that stays",
        &["unlink d/f", "utimes d"],
        &["d", "d/f"],
    );
    check("made and gone", &["mkfile o1-9-0", "unlink o1-9-0"], &[]);
    check(
        "metadata",
        &["chmod a", "chown b", "xattr d/c", "fileattr e", "verity f"],
        &["a", "b", "d/c", "e", "f"],
    );
    check(
        "replaced",
        &["unlink a", "mkdir o1-9-0", "rename o1-9-0 a"],
        &["a"],
    );
    check(
        "renamed over",
        &["mkfile o1-9-0", "rename o1-9-0 a"],
        &["a"],
    );
}

#[test]
fn ranges_are_merged_and_what_lay_behind_the_new_end_counts() {
    check(
        "ranges",
        &[
            "update a 0 4096",
            "update a 4096 4096",
            "update a 16384 1",
            "utimes a",
        ],
        &["a [0..8192, 16384..16385]"],
    );
    check(
        "shorter",
        &["truncate a 100"],
        &["a [100..18446744073709551615]"],
    );
    check(
        "both",
        &["update a 96 100", "truncate a 100"],
        &["a [96..18446744073709551615]"],
    );
    check(
        "with data",
        &["write a 0 10", "clone a 10 10", "fallocate a 50 2"],
        &["a [0..20, 50..52]"],
    );
    check(
        "in a moved directory",
        &["rename d e", "update e/f 0 1"],
        &["d below", "e below from d", "e/f [0..1]"],
    );
    check(
        "by two names",
        &["update a 0 1", "link b a"],
        &["a [0..1]", "b"],
    );
}

#[test]
fn moves_are_told_with_the_path_that_they_have_in_the_older_snapshot() {
    check("directory", &["rename d e"], &["d below", "e below from d"]);
    check("file", &["link b a", "unlink a"], &["a", "b from a"]);
    check("and back", &["rename d o1-9-0", "rename o1-9-0 d"], &[]);
    check(
        "swap",
        &["rename a o1-9-0", "rename b a", "rename o1-9-0 b"],
        &["a below from b", "b below from a"],
    );
    check(
        "chain",
        &["rename c d", "rename b c", "rename a b"],
        &[
            "a below",
            "b below from a",
            "c below from b",
            "d below from c",
        ],
    );
    check(
        "into a new one",
        &["mkdir o1-9-0", "rename d o1-9-0/d", "rename o1-9-0 n"],
        &["d below", "n", "n/d below from d"],
    );
    check(
        "both, one in the other",
        &["rename d/s t", "rename d e", "rename t e/t"],
        &[
            "d below",
            "e below from d",
            "e/s below",
            "e/t below from d/s",
        ],
    );
    check(
        "a parent under its child",
        &["rename d/s s", "rename d s/d"],
        &[
            "d below",
            "s below from d/s",
            "s/d below from d",
            "s/d/s below",
        ],
    );
    check(
        "out of a moved one",
        &["rename d e", "rename e/f g"],
        &["d below", "e below from d", "e/f below", "g below from d/f"],
    );
    check(
        "removed in a moved one",
        &["rename d e", "unlink e/f"],
        &["d below", "e below from d", "e/f"],
    );
    check(
        "removed by an orphan name",
        &[
            "rename d o1-9-0",
            "mkfile o2-9-0",
            "rename o2-9-0 d",
            "unlink o1-9-0/f",
            "rmdir o1-9-0",
        ],
        &["d"],
    );
    check(
        "over another",
        &["unlink b", "link b a", "unlink a"],
        &["a", "b from a"],
    );
}

#[test]
fn a_new_directory_in_the_place_of_an_old_one_is_emptied_of_what_that_held() {
    let new = ["mkdir o9-9-0", "rename o9-9-0 d"];
    let with = |before: &[&'static str], after: &[&'static str]| [before, &new, after].concat();
    check(
        "moved away",
        &with(&["rename d e"], &[]),
        &["d below", "e below from d"],
    );
    check(
        "removed",
        &with(&["unlink d/f", "rmdir d"], &[]),
        &["d", "d/f"],
    );
    check(
        "name used again",
        &with(&["unlink d/f", "rmdir d"], &["mkfile d/f"]),
        &["d", "d/f"],
    );
    check(
        "held moved away",
        &with(&["link x d/f", "unlink d/f", "rmdir d"], &[]),
        &["d", "d/f", "x from d/f"],
    );
    check(
        "removed below",
        &with(&["unlink d/s/f", "rmdir d/s", "rmdir d"], &[]),
        &["d", "d/s below"],
    );
    check(
        "made again below",
        &with(&["unlink d/s/f", "rmdir d/s", "rmdir d"], &["mkdir d/s"]),
        &["d", "d/s", "d/s/f"],
    );
    check(
        "moved from below, made again",
        &with(&["rename d/s t", "rmdir d"], &["mkdir d/s"]),
        &["d", "d/s below", "t below from d/s"],
    );
    check(
        "a moved one in its place",
        &["unlink d/f", "rmdir d", "rename e d"],
        &["d below from e", "e below"],
    );
    check(
        "a file in its place",
        &["unlink d/f", "rmdir d", "mkfile d"],
        &["d"],
    );
}

#[test]
fn moves_come_before_all_else() {
    let found = changes(
        &stream(&[
            "rename c b",
            "rename b a",
            "chmod d",
            "link f e",
            "unlink e",
        ])[..],
    );
    let found: Vec<String> = found.expect("a stream").iter().map(told).collect();
    assert_eq!(found, ["a below from c", "f from e", "c below", "d", "e"]);
}

#[test]
fn names_of_a_file_are_told_as_far_as_they_are_known() {
    check("further", &["link b a"], &["a", "b"]);
    check("fewer", &["unlink a", "utimes b"], &["a", "b"]);
    check(
        "of a new one",
        &["mkfile o1-9-0", "rename o1-9-0 a", "link b a"],
        &["a", "b"],
    );
    check(
        "one moved, one more",
        &["link b a", "link c a", "unlink a"],
        &["a", "b from a", "c"],
    );
    check(
        "unlinked and linked again",
        &[
            "link o1-9-0 a",
            "unlink a",
            "link a o1-9-0",
            "unlink o1-9-0",
        ],
        &[],
    );
}

#[test]
fn a_stream_without_a_parent_makes_everything() {
    let begin = command(1, &[snapshot(), path(15, "newer")].concat());
    let made = commands(&["mkdir d", "mkfile d/f"]);
    let all = [header(1), begin.clone(), made, command(21, &[])].concat();
    let found = changes(&all[..]).expect("a stream");
    assert_eq!(
        found.iter().map(told).collect::<Vec<_>>(),
        [".", "d", "d/f"]
    );
    let unknown = [header(1), begin, commands(&["chmod a"])].concat();
    let error = changes(&unknown[..])
        .expect_err("nothing older")
        .to_string();
    assert!(
        error.ends_with("\"a\": no such file or directory"),
        "{error}"
    );
}

#[test]
fn commands_that_cannot_be_are_errors() {
    let cases: [(&[&str], &str); 13] = [
        (&["unlink a", "chmod a"], "\"a\": no such file or directory"),
        (
            &["rename d e", "chmod d/f"],
            "\"d/f\": no such file or directory",
        ),
        (
            &["mkdir d", "chmod d/f"],
            "\"d/f\": no such file or directory",
        ),
        (&["mkdir d", "mkfile d"], "\"d\": already exists"),
        (&["chmod a", "link a b"], "\"a\": already exists"),
        (&["chmod d/f", "rmdir d"], "\"d\": not empty"),
        (&["chmod d/f", "rename e d"], "\"d\": not empty"),
        (&["rename a/b a"], "\"a\": not empty"),
        (&["rename d d/e"], "\"d\": cannot move or remove the root"),
        (&["rename d d/e/f"], "\"d\": cannot move or remove the root"),
        (&["rename / e"], "\".\": cannot move or remove the root"),
        (&["rmdir /"], "\".\": cannot move or remove the root"),
        (&["link a /"], "\".\": cannot move or remove the root"),
    ];
    for (lines, expected) in cases {
        let error = changes(&stream(lines)[..]).expect_err(expected).to_string();
        assert!(error.ends_with(expected), "{error}, not {expected}");
    }
    let begin = command(2, &[snapshot(), path(15, "x")].concat());
    let twice = [header(1), begin.clone(), begin].concat();
    let error = changes(&twice[..]).expect_err("twice").to_string();
    assert!(
        error.ends_with("a second snapshot begins before the end of the first"),
        "{error}"
    );
    let none = [header(1), command(21, &[])].concat();
    let error = changes(&none[..]).expect_err("none").to_string();
    assert!(
        error.ends_with("the stream does not begin with a snapshot"),
        "{error}"
    );
}

#[test]
fn memory_is_bounded() {
    let mut diff = Diff::bounded(10);
    let lines: Vec<String> = (0..20).map(|at| format!("chmod f{at}")).collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let bytes = stream(&lines);
    let mut stream = Stream::new(&bytes[..]).expect("a stream");
    let failed = stream.find_map(|command| diff.apply(&command.expect("whole")).err());
    assert!(
        matches!(failed, Some(StreamFault::TooMany(10))),
        "{failed:?}"
    );
}

#[test]
fn directories_in_each_other_without_end_are_refused() {
    let deeper = (0..5000).flat_map(|at| {
        [
            format!("mkdir n{at}"),
            format!("rename d n{at}/d"),
            format!("rename n{at} d"),
        ]
    });
    let lines: Vec<String> = deeper.collect();
    let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
    let error = changes(&stream(&lines)[..])
        .expect_err("too deep")
        .to_string();
    assert!(
        error.ends_with("more than 4096 nested directories"),
        "{error}"
    );
}

/// Commands on few names meet each other in all ways; most streams end with an error.
#[test]
fn no_stream_makes_it_panic() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let names = ["a", "b", "a/b", "b/a", "a/b/a", "o1-9-0", "/", "b/a/b"];
    let words = [
        "mkfile", "mkdir", "rename", "link", "unlink", "rmdir", "update", "truncate", "chmod",
    ];
    let mut whole = 0;
    for _ in 0..20_000 {
        let count = rng.usize(..8);
        let lines: Vec<String> = (0..count).map(|_| line(&mut rng, &words, &names)).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let mut bytes = stream(&lines);
        if rng.u8(..4) == 0 {
            let at = rng.usize(..bytes.len());
            bytes[at] = rng.u8(..);
        }
        whole += usize::from(changes(&bytes[..]).is_ok());
    }
    assert!(whole > 1000, "seed {seed}: {whole} streams were whole");
}

fn line(rng: &mut fastrand::Rng, words: &[&str], names: &[&str]) -> String {
    let word = words[rng.usize(..words.len())];
    let (name, other) = (
        names[rng.usize(..names.len())],
        names[rng.usize(..names.len())],
    );
    match word {
        "rename" | "link" => format!("{word} {name} {other}"),
        "update" | "truncate" => format!("{word} {name} {} {}", rng.u16(..), rng.u16(..)),
        _ => format!("{word} {name}"),
    }
}
