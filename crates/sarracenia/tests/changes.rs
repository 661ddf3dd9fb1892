//! What is announced is heard as the changes that it was, and what others announce as what may
//! differ.

use driftless_model::{Change, Hint, RelPath, Stamp};
use driftless_sarracenia::{
    About, Announced, BaseUrl, Became, Message, Standing, announce, changes_of,
};
use serde_json::{Value, json};

fn path(text: &str) -> RelPath {
    RelPath::parse(text.as_bytes()).expect("a path")
}

fn base(text: &str) -> BaseUrl {
    BaseUrl::parse(text).expect("a URL")
}

const NOW: Stamp = Stamp {
    sec: 1_769_854_272,
    nsec: 500_000_000,
};
const ABOUT: About = About {
    size: 4096,
    mode: 0o640,
    mtime: Stamp {
        sec: 1_769_854_000,
        nsec: 120_000_000,
    },
    atime: Stamp {
        sec: 1_769_854_001,
        nsec: 0,
    },
};

fn told(became: Became) -> Announced {
    Announced {
        path: path("hubs/new"),
        became,
    }
}

/// What is announced, the fields beside those that each message has, and what is heard.
fn cases() -> Vec<(Announced, Value, Vec<Change>)> {
    let file = json!({"size": 4096, "mode": "640", "mtime": "20260131T100640.12", "atime": "20260131T100641.0"});
    let with = |mut fields: Value, operation: Value| {
        fields["fileOp"] = operation;
        fields
    };
    let directory = {
        let mut fields = file.clone();
        fields.as_object_mut().expect("an object").remove("size");
        fields
    };
    let entry = |text: &str| Change::entry(path(text));
    let moved = |change: Change| change.with(Hint::MovedFrom(path("old")));
    let from = || path("old");
    vec![
        (
            told(Became::Here(Standing::File(ABOUT))),
            file.clone(),
            vec![entry("hubs/new"), entry("hubs")],
        ),
        (
            told(Became::Here(Standing::Directory(ABOUT))),
            with(directory.clone(), json!({"directory": ""})),
            vec![entry("hubs/new"), entry("hubs")],
        ),
        (
            told(Became::Here(Standing::Symlink {
                target: b"../t".to_vec(),
            })),
            with(json!({}), json!({"link": "../t"})),
            vec![entry("hubs/new"), entry("hubs")],
        ),
        (
            told(Became::Gone {
                was_directory: false,
            }),
            with(json!({}), json!({"remove": ""})),
            vec![Change::subtree(path("hubs/new")), entry("hubs")],
        ),
        (
            told(Became::Gone {
                was_directory: true,
            }),
            with(json!({}), json!({"remove": "", "directory": ""})),
            vec![Change::subtree(path("hubs/new")), entry("hubs")],
        ),
        (
            told(Became::Below(ABOUT)),
            {
                let mut fields = with(directory.clone(), json!({"directory": ""}));
                fields["driftlessBelow"] = "".into();
                fields
            },
            vec![Change::subtree(path("hubs/new")), entry("hubs")],
        ),
        (
            told(Became::Moved {
                from: from(),
                now: Standing::File(ABOUT),
            }),
            with(file.clone(), json!({"rename": "/src/tree/old"})),
            vec![
                moved(entry("hubs/new")),
                entry("old"),
                entry("hubs"),
                entry(""),
            ],
        ),
        (
            told(Became::Moved {
                from: from(),
                now: Standing::Directory(ABOUT),
            }),
            with(
                directory,
                json!({"rename": "/src/tree/old", "directory": ""}),
            ),
            vec![
                moved(Change::subtree(path("hubs/new"))),
                Change::subtree(path("old")),
                entry("hubs"),
                entry(""),
            ],
        ),
        (
            told(Became::Moved {
                from: from(),
                now: Standing::Symlink {
                    target: b"t".to_vec(),
                },
            }),
            with(json!({}), json!({"rename": "/src/tree/old", "link": "t"})),
            vec![
                moved(entry("hubs/new")),
                entry("old"),
                entry("hubs"),
                entry(""),
            ],
        ),
        (
            told(Became::Linked {
                of: from(),
                file: ABOUT,
            }),
            with(file, json!({"hlink": "/src/tree/old"})),
            vec![entry("hubs/new"), entry("old"), entry("hubs")],
        ),
    ]
}

#[test]
fn what_is_announced_is_heard() {
    // A slash behind the base URL makes no difference to what is written.
    for tree in ["file:/src/tree", "file:/src/tree/"] {
        for (announced, mut fields, changes) in cases() {
            let message = announce(&announced, &base(tree), NOW);
            fields["pubTime"] = "20260131T101112.5".into();
            fields["baseUrl"] = "file:/src/tree".into();
            fields["relPath"] = "hubs/new".into();
            let written: Value = serde_json::from_str(&message.to_json()).expect("JSON");
            assert_eq!(written, fields);
            let read = Message::parse(message.to_json().as_bytes()).expect("a message");
            assert_eq!(changes_of(&read, &base(tree)), changes, "{fields}");
        }
    }
}

#[test]
fn of_a_tree_of_which_something_was_missed_all_may_differ() {
    let announced = Announced {
        path: RelPath::root(),
        became: Became::Below(ABOUT),
    };
    for tree in ["file:/src/tree", "https://host"] {
        let message = announce(&announced, &base(tree), NOW);
        let read = Message::parse(message.to_json().as_bytes()).expect("a message");
        assert_eq!(read, message);
        assert_eq!(
            changes_of(&read, &base(tree)),
            [Change::subtree(RelPath::root())]
        );
    }
}

#[test]
fn a_tree_without_a_path_is_announced_by_going_up() {
    let tree = base("https://host");
    let announced = told(Became::Moved {
        from: path("old/d"),
        now: Standing::File(ABOUT),
    });
    let message = announce(&announced, &tree, NOW);
    let old = message.file_op.clone().expect("a rename").rename;
    assert_eq!(old.as_deref(), Some(&b"../old/d"[..]));
    let hint = Hint::MovedFrom(path("old/d"));
    assert_eq!(
        changes_of(&message, &tree)[0],
        Change::entry(path("hubs/new")).with(hint)
    );
}

#[test]
fn random_names_are_heard_as_they_were_announced() {
    for seed in 0..5000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut name = || -> RelPath {
            let mut one = || -> Vec<u8> {
                let bytes = (0..rng.usize(1..6)).map(|_| rng.u8(1..));
                let bytes: Vec<u8> = bytes.filter(|byte| *byte != b'/').collect();
                if matches!(&bytes[..], b"" | b"." | b"..") {
                    b"x".to_vec()
                } else {
                    bytes
                }
            };
            let names: Vec<Vec<u8>> = (0..3).map(|_| one()).collect();
            RelPath::from_names(names.iter().map(Vec::as_slice))
        };
        let (new, old) = (name(), name());
        let tree = base(["file:/src", "sftp://u@h/x", "https://h"][seed as usize % 3]);
        let became = Became::Moved {
            from: old.clone(),
            now: Standing::Directory(ABOUT),
        };
        let message = announce(
            &Announced {
                path: new.clone(),
                became,
            },
            &tree,
            NOW,
        );
        let read = Message::parse(message.to_json().as_bytes()).expect("a message");
        let changes = changes_of(&read, &tree);
        let moved = Change::subtree(new.clone()).with(Hint::MovedFrom(old.clone()));
        assert_eq!(changes[..2], [moved, Change::subtree(old)], "seed {seed}");
    }
}

fn heard(message: Value, tree: &str) -> Vec<String> {
    let mut object = json!({"pubTime": "20260131T101112.5", "baseUrl": "file:/src/tree"});
    let all = object.as_object_mut().expect("an object");
    all.extend(message.as_object().expect("an object").clone());
    let message = Message::parse(object.to_string().as_bytes()).expect("a message");
    let changes = changes_of(&message, &base(tree)).into_iter();
    let told = changes.map(|change| match change.hint {
        Some(Hint::MovedFrom(from)) => format!("{} {:?} from {from}", change.path, change.scope),
        _ => format!("{} {:?}", change.path, change.scope),
    });
    told.collect()
}

#[test]
fn trees_are_recognised_however_posters_divide_their_paths() {
    let at = |base_url: &str, rel_path: &str, tree: &str| {
        heard(json!({"baseUrl": base_url, "relPath": rel_path}), tree)
    };
    for (base_url, rel_path, tree, expected) in [
        (
            "file:/",
            "/src/tree/a",
            "file:/src/tree",
            &["a Entry", ". Entry"][..],
        ),
        (
            "file:",
            "src/tree/a",
            "file:/src/tree/",
            &["a Entry", ". Entry"],
        ),
        (
            "file:/src",
            "tree/a/b",
            "file:/src/tree",
            &["a/b Entry", "a Entry"],
        ),
        (
            "file:/src/tree/d",
            "a",
            "file:/src/tree",
            &["d/a Entry", "d Entry"],
        ),
        ("sftp://me@h/x", "a", "sftp://h/x", &["a Entry", ". Entry"]),
        ("file:/src/tree", "", "file:/src/tree", &[". Entry"]),
        ("file:/src/trees", "a", "file:/src/tree", &[]),
        ("file:/src", "a", "file:/src/tree", &[]),
        ("sftp://h/src/tree", "a", "file:/src/tree", &[]),
        ("sftp://h/x", "a", "sftp://g/x", &[]),
    ] {
        assert_eq!(
            at(base_url, rel_path, tree),
            expected,
            "{base_url} {rel_path} {tree}"
        );
    }
}

#[test]
fn old_names_are_found_in_all_forms_and_never_outside_of_the_tree() {
    let renamed = |old: &str| {
        let op = json!({"relPath": "d/e/new", "size": 1, "fileOp": {"rename": old}});
        heard(op, "file:/src/tree")
    };
    let moved = |from: &str, above: &str| {
        let told = [
            format!("d/e/new Entry from {from}"),
            format!("{from} Entry"),
            "d/e Entry".into(),
            format!("{above} Entry"),
        ];
        told.to_vec()
    };
    assert_eq!(renamed("/src/tree/x/old"), moved("x/old", "x"));
    assert_eq!(renamed("x/old"), moved("x/old", "x"));
    assert_eq!(renamed("/x/old"), moved("x/old", "x"));
    assert_eq!(renamed("../../x/old"), moved("x/old", "x"));
    assert_eq!(renamed("old"), moved("old", "."));
    let came = ["d/e/new Entry", "d/e Entry"];
    for elsewhere in [
        "../../../x",
        "..",
        "../..",
        "a/../b",
        "../a/../../../x",
        "d/e/new",
    ] {
        assert_eq!(renamed(elsewhere), came, "{elsewhere}");
    }
    // It went out of the tree.
    let gone =
        json!({"baseUrl": "file:/src", "relPath": "new", "fileOp": {"rename": "/src/tree/old"}});
    assert_eq!(heard(gone, "file:/src/tree"), ["old Subtree", ". Entry"]);
}

#[test]
fn what_posters_tell_wrongly_is_looked_at_further() {
    // The poster in C tells a further name as a rename, and a directory that was removed as a file.
    let linked = json!({"relPath": "b", "size": 5, "fileOp": {"rename": "/src/tree/a"}});
    assert_eq!(
        heard(linked, "file:/src/tree"),
        ["b Entry from a", "a Entry", ". Entry"]
    );
    let removed = json!({"relPath": "b/c", "fileOp": {"remove": ""}});
    assert_eq!(heard(removed, "file:/src/tree"), ["b/c Subtree", "b Entry"]);
    // A directory that was renamed is told by sr3 watch as one that is gone, and went there.
    for new in ["/src/tree/e/d", "/e/d"] {
        let gone = json!({"relPath": "b/d", "newname": new, "fileOp": {"remove": ""}});
        assert_eq!(
            heard(gone, "file:/src/tree"),
            ["e/d Subtree from b/d", "b/d Subtree", "e Entry", "b Entry"]
        );
    }
    let written = json!({"relPath": "b", "newname": "c"});
    assert_eq!(heard(written, "file:/src/tree"), ["b Entry", ". Entry"]);
    let same = json!({"relPath": "b", "newname": "b", "fileOp": {"remove": ""}});
    assert_eq!(heard(same, "file:/src/tree"), ["b Subtree", ". Entry"]);
    let fetched = json!({"relPath": "b", "retrievePath": "/c/d"});
    assert_eq!(
        heard(fetched, "file:/src/tree"),
        ["b Entry", "c/d Entry", ". Entry"]
    );
    let outside = json!({"relPath": "b", "retrievePath": "../d"});
    assert_eq!(heard(outside, "file:/src/tree"), ["b Entry", ". Entry"]);
}
