//! Lines as policies list them, in tables, and lists that are not whole.

use super::*;

fn base() -> Base {
    Base::new(b"/gpfs/.snapshots/s2")
}

fn line(shown: &str, path: &str) -> String {
    let shown = if shown.is_empty() {
        String::new()
    } else {
        format!(" {shown}")
    };
    format!("48131 1886419221 7 {shown} -- /gpfs/.snapshots/s2/{path}\n")
}

fn check(text: &str, directories: &[&str], entries: &[&str]) {
    let chosen = text.lines().count() as u64;
    let found = listed(text.as_bytes(), Escaping::Percent, &base(), chosen).expect(text);
    let told = |paths: &[RelPath]| paths.iter().map(ToString::to_string).collect::<Vec<_>>();
    assert_eq!(
        (told(&found.directories), told(&found.entries)),
        (
            directories.iter().map(ToString::to_string).collect(),
            entries.iter().map(ToString::to_string).collect()
        ),
        "{text}"
    );
}

#[test]
fn paths_are_read_as_they_are_escaped() {
    let cases: [(&str, &[u8]); 7] = [
        ("a%20b.txt", b"a b.txt"),
        ("pct%2541", b"pct%41"),
        ("%09%0a%FF", b"\t\n\xff"),
        ("a--b", b"a--b"),
        ("a%20--%20b", b"a -- b"),
        ("a -- b", b"a -- b"),
        ("", b""),
    ];
    for (escaped, expected) in cases {
        let object = parse(
            line("-rw-r--r--", escaped)
                .trim_end_matches('\n')
                .as_bytes(),
            Escaping::Percent,
            &base(),
        )
        .expect(escaped);
        assert_eq!(object.path.as_bytes(), expected, "{escaped}");
    }
    let plain = parse(
        b"1 2 0   -- /gpfs/.snapshots/s2/100% \xff",
        Escaping::None,
        &base(),
    )
    .expect("bytes");
    assert_eq!(
        (
            plain.path.as_bytes(),
            plain.inode,
            plain.generation,
            plain.snapshot
        ),
        (&b"100% \xff"[..], 1, 2, 0)
    );
    let shown = parse(
        line("4096%7Cdrwx------", "a").trim_end().as_bytes(),
        Escaping::Percent,
        &base(),
    )
    .expect("shown");
    assert_eq!(shown.shown, b"4096|drwx------");
}

#[test]
fn directories_are_told_apart_from_what_is_compared_alone() {
    let kinds: String = [
        ("drwxr-xr-x", "d"),
        ("-rw-r--r--", "f"),
        ("lrwxrwxrwx", "l"),
        ("prw-------", "p"),
        ("", "unknown"),
        ("drwx------%7C5", ""),
    ]
    .map(|(mode, path)| line(mode, path))
    .concat();
    check(&kinds, &[".", "d", "unknown"], &["f", "l", "p"]);
    check(
        &[
            line("-rw-r--r--", "b"),
            line("-rw-r--r--", "a"),
            line("-rw-r--r--", "b"),
        ]
        .concat(),
        &[],
        &["a", "b"],
    );
    check("", &[], &[]);
}

#[test]
fn a_list_that_is_not_whole_is_an_error() {
    let two = [line("-", "a"), line("-", "b")].concat();
    let cut = two.trim_end();
    let cases: [(&str, u64, &str); 13] = [
        (
            &two,
            3,
            "line 3 of the list: the summary counts 3 objects, and the list has 2",
        ),
        (
            &two,
            1,
            "line 2 of the list: the summary counts 1 objects, and the list has 2",
        ),
        (
            "",
            1,
            "line 1 of the list: the summary counts 1 objects, and the list has 0",
        ),
        (cut, 2, "line 2 of the list: truncated"),
        (
            &two,
            u64::MAX,
            "line 1 of the list: more than 16777216 objects changed",
        ),
        ("\n", 1, "line 1 of the list: no inode number"),
        ("1\n", 1, "line 1 of the list: no inode number"),
        (
            "1 4294967296 0   -- /a\n",
            1,
            "line 1 of the list: no generation number",
        ),
        (
            "1 2 x   -- /a\n",
            1,
            "line 1 of the list: no snapshot number",
        ),
        (
            "1 2 0  /a\n",
            1,
            "line 1 of the list: no \"--\" before the path",
        ),
        (
            "1 2 0   -- /gpfs/.snapshots/s2/%4\n",
            1,
            "line 1 of the list: \"/gpfs/.snapshots/s2/%4\" is not percent-encoded",
        ),
        (
            "1 2 0   -- /gpfs/a\n",
            1,
            "line 1 of the list: \"/gpfs/a\" is not a path below \"/gpfs/.snapshots/s2\"",
        ),
        (
            "1 2 0   -- /gpfs/.snapshots/s2/a%2f..%2fb\n",
            1,
            "line 1 of the list: \"/gpfs/.snapshots/s2/a/../b\" is not a path",
        ),
    ];
    for (text, chosen, expected) in cases {
        let error = listed(text.as_bytes(), Escaping::Percent, &base(), chosen)
            .expect_err(expected)
            .to_string();
        assert!(error.starts_with(expected), "{error}, not {expected}");
    }
}

#[test]
fn a_policy_names_snapshots_that_mean_nothing_else() {
    let scan = Scan::new(12, "s_2.x").expect("plain names");
    assert_eq!(
        (scan.substitution.as_str(), scan.folder.as_str()),
        ("older=12", ".snapshots/s_2.x")
    );
    let policy = "RULE EXTERNAL LIST 'changed' EXEC '' ESCAPE '%/'\nRULE 'differs' LIST 'changed' DIRECTORIES_PLUS SHOW(MODE)\n  WHERE MODIFICATION_SNAPID >= older\n";
    assert_eq!(scan.policy, policy);
    for bad in ["", "a b", "a)", "../a", "a'", "-a", "ü"] {
        assert!(Scan::new(12, bad).is_err(), "{bad}");
    }
}

#[test]
fn no_list_makes_it_panic() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let words = [
        "1",
        "2",
        " ",
        " ",
        " -- ",
        "-",
        "/gpfs/.snapshots/s2",
        "/a",
        "%20",
        "%",
        "\n",
        "d",
    ];
    for _ in 0..30_000 {
        let mut text: Vec<u8> = Vec::new();
        for _ in 0..rng.usize(..14) {
            text.extend(words[rng.usize(..words.len())].as_bytes());
        }
        if rng.bool() && !text.is_empty() {
            let at = rng.usize(..text.len());
            text[at] = rng.u8(..);
        }
        for escaping in [Escaping::Percent, Escaping::None] {
            let _may_fail = listed(&text[..], escaping, &base(), rng.u64(..3));
        }
    }
}
