//! Lines as ZFS prints them, in tables, and lines that it does not print.

use super::*;
use driftless_model::{Hint, Scope};

fn mount() -> Base {
    Base::new(b"/tank")
}

fn told(change: &Change) -> String {
    let scope = if change.scope == Scope::Subtree {
        " below"
    } else {
        ""
    };
    match &change.hint {
        Some(Hint::MovedFrom(from)) => format!("{}{scope} from {from}", change.path),
        _ => format!("{}{scope}", change.path),
    }
}

fn check(name: &str, lines: &[&str], expected: &[&str]) -> Found {
    let text: String = lines
        .iter()
        .map(|line| line.replace(' ', "\t") + "\n")
        .collect();
    let found =
        changes(text.as_bytes(), &mount()).unwrap_or_else(|error| panic!("{name}: {error}"));
    let mut all: Vec<String> = found.changes.iter().map(told).collect();
    all.sort_unstable();
    assert_eq!(all, expected, "{name}");
    found
}

#[test]
fn each_form_of_a_line_is_read() {
    let read = |line: &str| {
        parse(line.as_bytes(), &mount()).unwrap_or_else(|error| panic!("{line}: {error}"))
    };
    let renamed = read("1767225600.123456789\tR\tF\t/tank/a\\0040b\t/tank/c\\0134\\0012\\0377");
    assert_eq!(
        renamed.time,
        Some(Stamp {
            sec: 1_767_225_600,
            nsec: 123_456_789
        })
    );
    assert_eq!(
        (renamed.kind, renamed.path.as_bytes()),
        (Some(b'F'), &b"a b"[..])
    );
    assert_eq!(
        renamed.done,
        Done::Renamed(RelPath::parse(b"c\\\n\xff").expect("a path"))
    );
    assert_eq!(
        read("         5.000000001\t+\t/\t/tank/d").time,
        Some(Stamp { sec: 5, nsec: 1 })
    );
    let bare = read("M\t/tank/a\t(+2)");
    assert_eq!(
        (bare.time, bare.kind, bare.done),
        (None, None, Done::Modified(2))
    );
    assert_eq!(read("M\t/\t/tank/\t(-1)").done, Done::Modified(-1));
    assert_eq!(read("M\t/\t/tank").kind, Some(b'/'));
    let slash = parse(b"M\t/", &Base::new(b"/")).expect("the root");
    assert_eq!((slash.kind, slash.path), (None, RelPath::root()));
    assert!(read("+\tF\t/tank/a/<xattrdir>/user.b").is_attribute);
}

#[test]
fn changes_are_told_where_they_stand_in_the_newer_snapshot() {
    check(
        "each kind",
        &["M / /tank/", "+ F /tank/a", "- F /tank/b", "M F /tank/c"],
        &[".", "a", "b", "c"],
    );
    check("moved", &["R F /tank/a /tank/b"], &["a", "b from a"]);
    check(
        "swapped",
        &["R / /tank/a /tank/b", "R / /tank/b /tank/a"],
        &["a below from b", "b below from a"],
    );
    check(
        "chain",
        &["R / /tank/b /tank/c", "R / /tank/a /tank/b"],
        &["a below", "b below from a", "c below from b"],
    );
    check(
        "gone from a moved one",
        &["R / /tank/d /tank/e", "- F /tank/d/f"],
        &["d below", "e below from d", "e/f"],
    );
    check(
        "changed in a moved one",
        &["R / /tank/d /tank/e", "R F /tank/d/f /tank/e/f"],
        &["d below", "e below from d", "e/f"],
    );
    check(
        "moved in a moved one",
        &["R / /tank/d /tank/e", "R F /tank/d/f /tank/e/g"],
        &["d below", "e below from d", "e/f", "e/g from d/f"],
    );
    check(
        "moved and changed, in two lines",
        &["R / /tank/d /tank/e", "M / /tank/e"],
        &["d below", "e below from d"],
    );
    check(
        "all of a directory gone",
        &["- / /tank/d", "- F /tank/d/f"],
        &["d below"],
    );
    check(
        "another in its place",
        &["- / /tank/d", "- F /tank/d/f", "+ / /tank/d"],
        &["d", "d/f"],
    );
    check(
        "one made where one stood",
        &["R / /tank/d /tank/e", "+ / /tank/d"],
        &["d below", "e below from d"],
    );
    check(
        "attribute",
        &["M F /tank/a", "+ F /tank/b/<xattrdir>/user.c"],
        &["a", "b below"],
    );
    check(
        "attribute of a moved one",
        &["R F /tank/a /tank/b", "- F /tank/a/<xattrdir>/user.c"],
        &["a", "b below"],
    );
}

#[test]
fn links_that_are_not_told_are_to_be_looked_for_in_directories_that_changed() {
    let directories = |lines: &[&str], expected: &[&str]| -> Vec<String> {
        check("links", lines, expected)
            .directories
            .iter()
            .map(ToString::to_string)
            .collect()
    };
    assert_eq!(
        directories(&["M / /tank/d", "M F /tank/a (+1)"], &["a", "d"]),
        ["d"]
    );
    assert_eq!(
        directories(&["M / /tank/d", "M F /tank/a"], &["a", "d"]),
        Vec::<String>::new()
    );
    assert_eq!(
        directories(
            &[
                "M /tank/d",
                "M /tank/a (-1)",
                "R /tank/e /tank/f",
                "+ /tank/g"
            ],
            &["a", "d", "e below", "f below from e", "g"]
        ),
        ["d", "f", "g"]
    );
}

#[test]
fn each_fault_is_told_with_its_line() {
    let cases = [
        ("M\t/tank/a\n\n", "line 2 of zfs diff: no change"),
        ("M\t/tank/a", "line 1 of zfs diff: truncated"),
        ("M\n", "line 1 of zfs diff: no path"),
        (
            "M\tF\n",
            "line 1 of zfs diff: \"F\" is not a path below \"/tank\"",
        ),
        ("X\t/tank/a\n", "line 1 of zfs diff: invalid change \"X\""),
        ("R\t/tank/a\n", "line 1 of zfs diff: no new path"),
        ("R\t/tank/a -> /tank/b\n", "line 1 of zfs diff: no new path"),
        (
            "+\t/tank/a\t/tank/b\n",
            "line 1 of zfs diff: unexpected text after the path: \"/tank/b\"",
        ),
        (
            "R\tF\t/tank/a\t/tank/b\tc\n",
            "line 1 of zfs diff: unexpected text after the path: \"c\"",
        ),
        (
            "M\t/tank/a\t(x)\n",
            "line 1 of zfs diff: invalid number of links \"(x)\"",
        ),
        (
            "M\t/tanks/a\n",
            "line 1 of zfs diff: \"/tanks/a\" is not a path below \"/tank\"",
        ),
        (
            "R\t/tank/a\t/b\n",
            "line 1 of zfs diff: \"/b\" is not a path below \"/tank\"",
        ),
        (
            "M\t/tank/../a\n",
            "line 1 of zfs diff: \"/tank/../a\" is not a path below \"/tank\"",
        ),
        (
            "M\t/tank/???<object#5>/a\n",
            "line 1 of zfs diff: \"/tank/???<object#5>/a\" is not a path",
        ),
        (
            "M\t/tank/\\004\n",
            "line 1 of zfs diff: invalid escaped path \"/tank/\\\\004\"",
        ),
        (
            "M\t/tank/\\0777\n",
            "line 1 of zfs diff: invalid escaped path \"/tank/\\\\0777\"",
        ),
        (
            "M\t/tank/\\+040\n",
            "line 1 of zfs diff: invalid escaped path \"/tank/\\\\+040\"",
        ),
        (
            "M\t/tank/\\0000\n",
            "line 1 of zfs diff: \"/tank/\\x00\" is not a path below",
        ),
    ];
    for (text, expected) in cases {
        let error = changes(text.as_bytes(), &mount())
            .expect_err(expected)
            .to_string();
        assert!(error.starts_with(expected), "{error}, not {expected}");
    }
}

#[test]
fn no_text_makes_it_panic() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let words = [
        "+",
        "-",
        "M",
        "R",
        "/",
        "F",
        "/tank/a",
        "/tank/a/b",
        "/tank",
        "/tank/b/a",
        "(+1)",
        "1.000000001",
        "\\0040",
        "\\",
        "\n",
        "\n",
        "/tank/a/<xattrdir>",
    ];
    let mut good = 0;
    for _ in 0..30_000 {
        let mut text: Vec<u8> = Vec::new();
        for _ in 0..rng.usize(..12) {
            text.extend(words[rng.usize(..words.len())].as_bytes());
            text.push(if rng.u8(..20) == 0 { rng.u8(..) } else { b'\t' });
        }
        let text = String::from_utf8_lossy(&text).replace("\t\n\t", "\n");
        good += usize::from(changes(text.as_bytes(), &mount()).is_ok());
    }
    assert!(good > 10, "seed {seed}: {good} texts could be read");
}
