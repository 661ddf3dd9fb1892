//! Recorded lines in tables, a stand-in for the file system's numbers, and lines that are none.

mod recorded;

use super::*;
use driftless_model::{Change, EntryName, Hint, Scope, Stamp};
use recorded::{Numbers, fid, line, moved, named, renamed};

fn read(text: &str) -> Vec<Record> {
    let records: Result<Vec<Record>, _> = Records::new(text.as_bytes()).collect();
    records.unwrap_or_else(|error| panic!("{error} of {text}"))
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

fn check(name: &str, lines: &[String], expected: &[&str]) {
    let Ok(found) = changes(&read(&lines.concat()), &mut Numbers(0));
    let mut found: Vec<String> = found.iter().map(told).collect();
    found.sort_unstable();
    assert_eq!(found, expected, "{name}");
}

fn bytes(name: Option<&EntryName>) -> Vec<u8> {
    name.map_or_else(Vec::new, |name| name.as_bytes().to_vec())
}

#[test]
fn a_record_is_read_with_all_that_it_says() {
    let text = "1042 08RENME 10:11:12.123456789 2026.01.31 0x1 t=[0x200000402:0x3:0x0] j=dd.0 ef=0xf u=0:0 nid=10.0.0.7@tcp p=[0x200000007:0x1:0x0] new s=[0x200000402:0x9:0x0] sp=[0x200000007:0x1:0x0] old\n";
    let record = read(text).remove(0);
    assert_eq!(
        (record.index, record.kind, record.flags),
        (1042, Kind::Renamed, 1)
    );
    assert_eq!(
        record.time,
        Stamp {
            sec: 1_769_854_272,
            nsec: 123_456_789
        }
    );
    assert_eq!(
        (record.target, bytes(record.name.as_ref())),
        (Some(fid(3)), b"new".to_vec())
    );
    let source = record.source.expect("a rename");
    assert_eq!(
        (
            source.fid,
            source.parent.to_string().as_str(),
            source.name.as_bytes()
        ),
        (fid(9), "[0x200000007:0x1:0x0]", &b"old"[..])
    );
    let close =
        read("7 11CLOSE 00:00:00.000000000 1970.01.01 0x42 t=[0x200000402:0x3:0x0]\n").remove(0);
    assert_eq!(
        (close.kind, close.time, close.parent, close.name),
        (Kind::Changed, Stamp { sec: 0, nsec: 0 }, None, None)
    );
    assert_eq!(
        read("7 00MARK  00:00:00.000000000 2000.03.01 0x0 t=[0x0:0x0:0x0] p=[0x0:0x0:0x0] mdd\n")
            [0]
        .time
        .sec,
        951_868_800
    );
}

#[test]
fn names_are_read_as_they_stand_there() {
    let cases: [&str; 9] = [
        "a b",
        " a ",
        "p=[0x1:0x1:0x0]",
        "a p=[0x1:0x1:0x0] b",
        "s=",
        "a\nb",
        "a\n",
        "\n\n",
        "1 a\nb 01CREAT",
    ];
    for name in cases {
        let record =
            read(&[named("01CREAT", 1, name), named("06UNLNK", 1, "next")].concat()).remove(0);
        assert_eq!(
            (bytes(record.name.as_ref()), record.parent),
            (name.as_bytes().to_vec(), Some(fid(1))),
            "{name:?}"
        );
        let moved = read(&renamed((2, name), (1, name))).remove(0);
        let source = moved.source.unwrap_or_else(|| panic!("{name:?}"));
        assert_eq!(
            (bytes(moved.name.as_ref()), bytes(Some(&source.name))),
            (name.as_bytes().to_vec(), name.as_bytes().to_vec()),
            "{name:?}"
        );
    }
    let nasty = "a s=[0x1:0x1:0x0] sp=[0x1:0x1:0x0] b";
    let moved = read(&renamed((2, "old"), (1, nasty))).remove(0);
    assert_eq!(bytes(moved.name.as_ref()), nasty.as_bytes());
    let text = [
        &line("01CREAT", 3, &format!(" p={} ", fid(1))).into_bytes()[..],
        b"\xff",
    ]
    .concat();
    let raw = [text[..text.len() - 2].to_vec(), b"\xff\n".to_vec()].concat();
    let record = Records::new(&raw[..])
        .next()
        .expect("one")
        .expect("a record");
    assert_eq!(bytes(record.name.as_ref()), b"\xff");
}

#[test]
fn records_become_changes_where_their_directories_are() {
    check(
        "made",
        &[
            named("01CREAT", 1, "a"),
            named("02MKDIR", 1, "b"),
            named("04SLINK", 7, "c"),
        ],
        &["c", "d1/a", "d1/b"],
    );
    check(
        "removed",
        &[named("06UNLNK", 1, "a"), named("07RMDIR", 2, "b")],
        &["d1/a", "d2/b below"],
    );
    check(
        "linked",
        &[line("03HLINK", 0x200, &format!(" p={} c", fid(1)))],
        &["d1/c", "d1/two", "one"],
    );
    check(
        "changed",
        &[line("11CLOSE", 0x200, ""), line("14SATTR", 1, "")],
        &["d1", "d1/two", "one"],
    );
    check(
        "read",
        &[line("10OPEN ", 1, ""), line("24NOPEN", 1, "")],
        &[],
    );
    check(
        "gone or elsewhere",
        &[named("01CREAT", 0xfff, "a"), line("11CLOSE", 0xffe, "")],
        &[],
    );
    check(
        "an old rename",
        &[named("09RNMTO", 1, "a")],
        &["d1/a below"],
    );
}

#[test]
fn renames_are_told_with_where_the_entry_was_before_all_records() {
    check(
        "one",
        &[renamed((1, "a"), (2, "b"))],
        &["d1/a", "d2/b from d1/a"],
    );
    check(
        "a directory",
        &[moved(0x52, (1, "a"), (2, "b"))],
        &["d1/a below", "d2/b below from d1/a"],
    );
    check(
        "gone since",
        &[moved(0xfff, (1, "a"), (2, "b"))],
        &["d1/a below", "d2/b below from d1/a"],
    );
    check(
        "two",
        &[renamed((1, "a"), (1, "b")), renamed((1, "b"), (1, "c"))],
        &["d1/a", "d1/b", "d1/c from d1/a"],
    );
    check(
        "and back",
        &[renamed((1, "a"), (1, "b")), renamed((1, "b"), (1, "a"))],
        &["d1/a", "d1/b"],
    );
    check(
        "a new one",
        &[named("01CREAT", 1, "tmp"), renamed((1, "tmp"), (1, "a"))],
        &["d1/a", "d1/tmp"],
    );
    check(
        "swap",
        &[
            renamed((1, "a"), (1, "x")),
            renamed((1, "b"), (1, "a")),
            renamed((1, "x"), (1, "b")),
        ],
        &["d1/a from d1/b", "d1/b from d1/a", "d1/x"],
    );
    check(
        "gone after it",
        &[renamed((1, "a"), (1, "b")), named("06UNLNK", 1, "b")],
        &["d1/a", "d1/b"],
    );
    check(
        "from elsewhere",
        &[renamed((0xffe, "a"), (1, "b"))],
        &["d1/b"],
    );
    check(
        "to elsewhere",
        &[renamed((1, "a"), (0xffe, "b"))],
        &["d1/a"],
    );
}

#[test]
fn a_record_that_is_not_understood_never_means_nothing() {
    check("unknown", &[named("25FUTUR", 1, "a")], &["d1 below"]);
    check(
        "unknown without a name",
        &[line("99FUTUR", 2, "")],
        &["d2 below"],
    );
    check(
        "unknown without anything",
        &[line("99FUTUR", 0, "")],
        &[". below"],
    );
    check("mark", &[line("00MARK ", 0, "")], &[". below"]);
    check(
        "made without a name",
        &[line("01CREAT", 2, "")],
        &["d2 below"],
    );
    check(
        "beside others",
        &[named("01CREAT", 7, "d1"), named("25FUTUR", 1, "a")],
        &["d1 below"],
    );
}

#[test]
fn each_number_is_looked_up_once() {
    let lines: Vec<String> = (0..100)
        .map(|at| named("01CREAT", at % 2 + 1, &format!("f{at}")))
        .collect();
    let mut numbers = Numbers(0);
    let Ok(found) = changes(&read(&lines.concat()), &mut numbers);
    assert_eq!((found.len(), numbers.0), (100, 2));
}

#[test]
fn each_fault_is_told_with_its_line_and_the_others_are_read() {
    let good = named("01CREAT", 1, "a");
    let cases = [
        (
            "1 01CREAT\n".to_owned(),
            "line 2 of the changelog: no time in \"\"",
        ),
        (
            good.replace("10:11:12.123456789", "24:11:12.123456789"),
            "line 2 of the changelog: no time in \"24:11",
        ),
        (
            good.replace("2026.01.31", "2026.13.31"),
            "line 2 of the changelog: no date",
        ),
        (
            good.replace(" 0x1 ", " 1 "),
            "line 2 of the changelog: no flags",
        ),
        (
            good.replace("t=[", "t=("),
            "line 2 of the changelog: no target",
        ),
        (
            good.replace(" a\n", " a/b\n"),
            "line 2 of the changelog: \"a/b\" is not a name",
        ),
        (
            good.replace("1042", "99999999999999999999"),
            "line 2 of the changelog: no index",
        ),
    ];
    for (bad, expected) in cases {
        let text = [good.clone(), bad, good.clone()].concat();
        let found: Vec<_> = Records::new(text.as_bytes()).collect();
        assert!(
            found[0].is_ok() && found[2].is_ok() && found.len() == 3,
            "{expected}"
        );
        let error = found[1].as_ref().expect_err(expected).to_string();
        assert!(error.starts_with(expected), "{error}, not {expected}");
    }
    let cut: Vec<_> = Records::new(good.trim_end().as_bytes()).collect();
    assert_eq!(
        cut[0].as_ref().expect_err("cut off").to_string(),
        "line 1 of the changelog: truncated"
    );
    let none: Vec<_> = Records::new(&b"no record\n"[..]).collect();
    assert!(
        none[0]
            .as_ref()
            .expect_err("none")
            .to_string()
            .starts_with("line 1 of the changelog: no index")
    );
    let endless = [good, "x\n".repeat(200_000)].concat();
    let error = Records::new(endless.as_bytes())
        .next()
        .expect("one")
        .expect_err("too long");
    assert!(error.to_string().contains("longer than"), "{error}");
}

#[test]
fn no_log_makes_it_panic() {
    let seed = fastrand::u64(..);
    println!("seed {seed}");
    let mut rng = fastrand::Rng::with_seed(seed);
    let lines = [
        named("01CREAT", 1, "a"),
        renamed((1, "a"), (2, "b")),
        line("11CLOSE", 5, ""),
        line("77AAAAA", 0, ""),
    ];
    let mut whole = 0;
    for _ in 0..20_000 {
        let mut text: Vec<u8> = (0..rng.usize(..4))
            .flat_map(|_| lines[rng.usize(..4)].clone().into_bytes())
            .collect();
        for _ in 0..rng.usize(..4) {
            if !text.is_empty() {
                let at = rng.usize(..text.len());
                text[at] = [b' ', b'[', b']', b'\n', b's', b'=', rng.u8(..)][rng.usize(..7)];
            }
        }
        let good: Vec<Record> = Records::new(&text[..]).flatten().collect();
        let Ok(found) = changes(&good, &mut Numbers(0));
        whole += usize::from(!found.is_empty());
    }
    assert!(whole > 1000, "seed {seed}: {whole} logs told something");
}
