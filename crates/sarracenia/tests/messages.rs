//! Messages are read as Sarracenia reads them, dangerous ones are refused, and what is written is
//! read as the same.

use driftless_model::{RelPath, Stamp, escape};
use driftless_sarracenia::{
    BaseUrl, CONTENT_TYPE, CONTENT_TYPE_V02, Headers, MESSAGE_BYTES_MAX, Message, NAMES_FIELD,
    Operation, parse,
};
use serde_json::{Value, json};

fn path(bytes: &[u8]) -> RelPath {
    RelPath::parse(bytes).expect("a path")
}

/// A message that has these fields besides those that each has.
fn with(fields: Value) -> Value {
    let mut object = json!({
        "pubTime": "20260131T101112.123456789",
        "baseUrl": "file:/src/tree",
        "relPath": "hubs/x",
    });
    let all = object.as_object_mut().expect("an object");
    all.extend(fields.as_object().expect("an object").clone());
    object
}

fn read(message: &Value) -> Message {
    Message::parse(message.to_string().as_bytes()).unwrap_or_else(|why| panic!("{message}: {why}"))
}

fn refused(message: &Value) -> String {
    let read = Message::parse(message.to_string().as_bytes());
    read.expect_err(&message.to_string()).to_string()
}

#[test]
fn a_message_of_a_file_is_read_with_all_it_says() {
    let body = with(json!({
        "relPath": "hubs/suites/a/x.fst", "size": 7, "mode": "644",
        "mtime": "20260131T101112.12", "atime": "20260131T101113.5",
        "identity": {"method": "md5", "value": "1B2M2Y8AsgTpgAmY7PhCfg=="},
        "rename": "/b", "retrievePath": "c", "contentType": "text/plain",
        "blocks": {"method": "inplace", "size": "4096", "number": 0, "manifest": {"0": {"size": 7}}},
        "content": {"encoding": "utf-8", "value": "1234567"},
    }));
    let message = read(&body);
    let stamp = |sec, nsec| Stamp { sec, nsec };
    assert_eq!(message.pub_time, stamp(1_769_854_272, 123_456_789));
    assert_eq!(message.base_url.as_str(), "file:/src/tree");
    assert_eq!(message.rel_path, path(b"hubs/suites/a/x.fst"));
    assert_eq!((message.size, message.mode), (Some(7), Some(0o644)));
    assert_eq!(message.mtime, Some(stamp(1_769_854_272, 120_000_000)));
    assert_eq!(message.atime, Some(stamp(1_769_854_273, 500_000_000)));
    assert_eq!(message.identity.clone().expect("a sum").method, "md5");
    assert_eq!(message.rename.as_deref(), Some("/b"));
    assert_eq!(message.retrieve_path.as_deref(), Some("c"));
    let blocks = message.blocks.as_ref().expect("blocks");
    assert_eq!((blocks.method.as_str(), blocks.size), ("inplace", 4096));
    let content = message.content.as_ref().expect("content");
    assert_eq!(content.bytes().as_deref(), Some(&b"1234567"[..]));
    assert_eq!(
        message.others,
        *json!({"contentType": "text/plain"})
            .as_object()
            .expect("one")
    );
    let mut expected = body;
    expected["blocks"]["size"] = 4096.into();
    let written: Value = serde_json::from_str(&message.to_json()).expect("JSON");
    assert_eq!(written, expected);
}

#[test]
fn what_real_posters_write_is_taken() {
    for (fields, size, mode, sum) in [
        (json!({"size": "12"}), Some(12), None, None),
        (
            json!({"size": 12, "mode": "0644"}),
            Some(12),
            Some(0o644),
            None,
        ),
        (json!({"mode": "100755"}), None, Some(0o755), None),
        (json!({"mode": "0o600"}), None, Some(0o600), None),
        (json!({"parts": "1,34,1,0,0"}), Some(34), None, None),
        (
            json!({"integrity": {"method": "sha512", "value": "ab\ncd==\n"}}),
            None,
            None,
            Some("abcd=="),
        ),
        (
            json!({"identity": {"method": "arbitrary", "value": "a b"}}),
            None,
            None,
            Some("a b"),
        ),
        (
            json!({"identity": {"method": "cod", "value": "md5"}}),
            None,
            None,
            Some("md5"),
        ),
    ] {
        let message = read(&with(fields.clone()));
        assert_eq!((message.size, message.mode), (size, mode), "{fields}");
        let value = message.identity.map(|identity| identity.value);
        assert_eq!(value.as_deref(), sum, "{fields}");
        assert!(message.others.is_empty(), "{fields}: {:?}", message.others);
    }
    for (rel_path, expected) in [
        ("/hubs/x", "hubs/x"),
        ("//a//./b/", "a/b"),
        ("", ""),
        ("/", ""),
    ] {
        let message = read(&with(json!({"relPath": rel_path})));
        assert_eq!(message.rel_path, path(expected.as_bytes()), "{rel_path}");
    }
    assert_eq!(
        read(&with(json!({"retPath": "a"})))
            .retrieve_path
            .as_deref(),
        Some("a")
    );
}

#[test]
fn what_cannot_be_read_and_does_no_harm_is_forwarded_as_it_is() {
    let odd = json!({
        "size": -1, "mode": 420, "mtime": "yesterday", "atime": 5, "identity": "none",
        "content": 3, "blocks": [], "parts": "i,1,2,3,4", "geometry": {"a": [1, null, "ü"]},
        "_own": {"deep": {"er": true}}, "rename": 1,
    });
    let message = read(&with(odd.clone()));
    assert_eq!(message.others, *odd.as_object().expect("an object"));
    let written: Value = serde_json::from_str(&message.to_json()).expect("JSON");
    assert_eq!(written, with(odd));
}

#[test]
fn operations_are_read_in_all_their_forms() {
    let operation = |value: Value| read(&with(json!({"fileOp": value}))).file_op.expect("one");
    let nothing = Operation::default();
    let bytes = |text: &str| Some(text.as_bytes().to_vec());
    for (value, expected) in [
        (
            json!({"rename": "hubs/old"}),
            Operation {
                rename: bytes("hubs/old"),
                ..nothing.clone()
            },
        ),
        (
            json!({"remove": ""}),
            Operation {
                remove: true,
                ..nothing.clone()
            },
        ),
        (
            json!({"remove": "", "directory": ""}),
            Operation {
                remove: true,
                directory: true,
                ..nothing.clone()
            },
        ),
        (
            json!({"directory": ""}),
            Operation {
                directory: true,
                ..nothing.clone()
            },
        ),
        (
            json!({"link": "../target", "rename": "hubs/oldlink"}),
            Operation {
                link: bytes("../target"),
                rename: bytes("hubs/oldlink"),
                ..nothing.clone()
            },
        ),
        (
            json!({"hlink": "a"}),
            Operation {
                hlink: bytes("a"),
                ..nothing.clone()
            },
        ),
    ] {
        assert_eq!(operation(value.clone()), expected, "{value}");
    }
    let odd = operation(json!({"truncate": 5, "link": 7}));
    assert_eq!(
        odd.others,
        *json!({"truncate": 5, "link": 7}).as_object().expect("one")
    );
}

#[test]
fn what_would_be_dangerous_is_refused_and_named() {
    for (fields, expected) in [
        (
            json!({"relPath": "../x"}),
            "relPath: \"../x\" is no path below the base URL",
        ),
        (
            json!({"relPath": "a/../../x"}),
            "relPath: \"a/../../x\" is no path",
        ),
        (
            json!({"relPath": "/../etc/passwd"}),
            "relPath: \"/../etc/passwd\" is no path",
        ),
        (
            json!({"relPath": "a\u{0}b"}),
            "relPath: \"a\\x00b\" is no path",
        ),
        (
            json!({"baseUrl": "gopher://h/x"}),
            "baseUrl: \"gopher\" is none of the schemes file,",
        ),
        (json!({"baseUrl": "/src"}), "baseUrl: \"/src\" is not a URL"),
        (
            json!({"baseUrl": "file:/src/../etc"}),
            "baseUrl: \"file:/src/../etc\" is no path",
        ),
        (
            json!({"fileOp": "remove"}),
            "fileOp: \"\\\"remove\\\"\" is not an object",
        ),
        (
            json!({"fileOp": {"link": "a\u{0}"}}),
            "fileOp: \"a\\x00\" is no path",
        ),
        (
            json!({"pubTime": "now"}),
            "pubTime: \"now\" is not a moment",
        ),
        (json!({"pubTime": null}), "pubTime is missing"),
        (json!({"relPath": 5}), "relPath is missing"),
    ] {
        let why = refused(&with(fields.clone()));
        assert!(why.starts_with(expected), "{fields}: {why}");
    }
    for body in [
        &b""[..],
        b"[]",
        b"{",
        b"{}x",
        b"null",
        b"\xff",
        b"{\"pubTime\":\"\\ud800\"}",
    ] {
        assert!(Message::parse(body).is_err(), "{}", escape(body));
    }
    let long = vec![b' '; MESSAGE_BYTES_MAX + 1];
    let why = Message::parse(&long).expect_err("too long").to_string();
    assert!(why.contains("more than 1048576"), "{why}");
    let deep = [b"{\"a\":".repeat(5000), b"1".to_vec(), b"}".repeat(5000)].concat();
    assert!(Message::parse(&deep).is_err());
}

#[test]
fn an_error_shows_little_of_what_others_wrote_and_nothing_that_moves_the_cursor() {
    let text = format!("\u{1b}[2J\u{202e}{}", "x".repeat(100_000));
    for field in ["pubTime", "baseUrl", "relPath"] {
        let why = refused(&with(json!({field: format!("{text}/../")})));
        assert!(why.len() < 300, "{field}: {} bytes", why.len());
        assert!(!why.contains(['\u{1b}', '\u{202e}']), "{why}");
    }
}

#[test]
fn names_that_are_no_text_travel_beside_their_stand_ins() {
    let base = BaseUrl::parse("file:/src").expect("a URL");
    let mut message = Message::new(Stamp::default(), base, path(b"d\xff/\xc3(x y"));
    message.file_op = Some(Operation {
        rename: Some(b"/src/old\x80".to_vec()),
        link: Some(b"\xfe".to_vec()),
        ..Operation::default()
    });
    let written: Value = serde_json::from_str(&message.to_json()).expect("JSON");
    assert_eq!(written["relPath"], "d\u{efff}/\u{efc3}(x y");
    assert_eq!(
        written[NAMES_FIELD],
        json!({"relPath": "d%FF/%C3%28x%20y", "rename": "/src/old%80", "link": "%FE"})
    );
    assert_eq!(read(&written), message);
    // Whoever changes the visible name means it; what is hidden cannot lead elsewhere.
    let mut changed = written.clone();
    changed["relPath"] = "other".into();
    assert_eq!(read(&changed).rel_path, path(b"other"));
    for hidden in ["../../etc/passwd", "%2E%2E/x", "a%00", "%FF", ""] {
        let mut hostile = written.clone();
        hostile[NAMES_FIELD]["relPath"] = hidden.into();
        let shown = "d\u{efff}/\u{efc3}(x y".as_bytes();
        assert_eq!(read(&hostile).rel_path, path(shown), "{hidden}");
    }
    for nonsense in [json!(5), json!([]), json!({"relPath": 5})] {
        let mut odd = written.clone();
        odd[NAMES_FIELD] = nonsense;
        assert!(read(&odd).rel_path.as_bytes().starts_with(b"d\xee"));
    }
}

#[test]
fn lone_surrogates_of_python_are_the_bytes_that_they_stand_for() {
    let body = br#"{"pubTime":"20260131T101112.1","baseUrl":"file:/s","relPath":"a/\udcff\udc80.txt","fileOp":{"rename":"/s/\udcfe"}}"#;
    let message = Message::parse(body).expect("a message");
    assert_eq!(message.rel_path, path(b"a/\xff\x80.txt"));
    let old = message.file_op.expect("a rename").rename;
    assert_eq!(old.as_deref(), Some(&b"/s/\xfe"[..]));
}

fn random_bytes(rng: &mut fastrand::Rng) -> Vec<u8> {
    let special = [
        "a", "..", "/", "#", "*", "ü", "\u{efff}", "\n", "\"", "\\", " ", "%41", ".",
    ];
    let mut bytes = Vec::new();
    for _ in 0..rng.usize(1..8) {
        match rng.u8(..3) {
            0 => bytes.push(rng.u8(1..)),
            1 => bytes.extend(special[rng.usize(..special.len())].bytes()),
            _ => bytes.extend(rng.char(..).encode_utf8(&mut [0; 4]).bytes()),
        }
    }
    bytes.retain(|byte| *byte != 0);
    if bytes.is_empty() {
        b"x".to_vec()
    } else {
        bytes
    }
}

fn random_message(rng: &mut fastrand::Rng) -> Message {
    let names: Vec<Vec<u8>> = (0..rng.usize(..5)).map(|_| random_bytes(rng)).collect();
    let names = names
        .iter()
        .flat_map(|name| name.split(|byte| *byte == b'/'));
    let names = names.filter(|name| !matches!(*name, b"" | b"." | b".."));
    let stamp = |rng: &mut fastrand::Rng| Stamp {
        sec: rng.i64(-10_000_000_000..200_000_000_000),
        nsec: rng.u32(..1_000_000_000),
    };
    let base = ["file:/src", "sftp://u@h/x/", "https://h"][rng.usize(..3)];
    let base = BaseUrl::parse(base).expect("a URL");
    let mut message = Message::new(stamp(rng), base, RelPath::from_names(names));
    message.size = rng.bool().then(|| rng.u64(..));
    message.mode = rng.bool().then(|| rng.u32(..=0o7777));
    message.mtime = rng.bool().then(|| stamp(rng));
    message.file_op = rng.bool().then(|| Operation {
        rename: rng.bool().then(|| random_bytes(rng)),
        link: rng.bool().then(|| random_bytes(rng)),
        hlink: rng.bool().then(|| random_bytes(rng)),
        remove: rng.bool(),
        directory: rng.bool(),
        ..Operation::default()
    });
    message
}

#[test]
fn random_messages_are_read_as_they_were_written() {
    for seed in 0..10_000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let message = random_message(&mut rng);
        let json = message.to_json();
        let back = Message::parse(json.as_bytes()).unwrap_or_else(|why| panic!("{seed}: {why}"));
        assert_eq!(back, message, "seed {seed}: {json}");
        // As serde sees it, it is the same.
        assert_eq!(serde_json::to_string(&message).expect("JSON"), json);
        let by_serde: Message = serde_json::from_str(&json).expect("a message");
        assert_eq!(by_serde, message, "seed {seed}");
    }
}

#[test]
fn damaged_messages_never_panic_and_what_is_read_stays_the_same() {
    for seed in 0..20_000 {
        let mut rng = fastrand::Rng::with_seed(seed);
        let mut body = random_message(&mut rng).to_json().into_bytes();
        for _ in 0..rng.usize(1..6) {
            let at = rng.usize(..body.len());
            match rng.u8(..4) {
                0 => body[at] = rng.u8(..),
                1 => drop(body.remove(at)),
                2 => body.insert(at, b"\\\"u{}[]:,."[rng.usize(..10)]),
                _ => body.truncate(at + 1),
            }
            if body.is_empty() {
                break;
            }
        }
        if let Ok(message) = Message::parse(&body) {
            let again = Message::parse(message.to_json().as_bytes()).expect("it was read before");
            assert_eq!(again, message, "seed {seed}: {}", escape(&body));
        }
        let headers = Headers::from([("sum".into(), escape(&body)), ("parts".into(), "1".into())]);
        let _any = Message::parse_v02(&body, &headers);
    }
}

fn headers(all: &[(&str, &str)]) -> Headers {
    all.iter()
        .map(|(key, value)| (key.to_string(), value.to_string()))
        .collect()
}

#[test]
fn messages_of_version_02_become_the_same() {
    let nothing = Operation::default();
    let read = |sum: &str, more: &[(&str, &str)]| {
        let all: Vec<_> = [("sum", sum)].iter().chain(more).copied().collect();
        let body = b"20260131101112.5 sftp://u@h/x%20y /a/b%20c%23d";
        Message::parse_v02(body, &headers(&all)).expect(sum)
    };
    let file = read(
        "d,d41d8cd98f00b204e9800998ecf8427e",
        &[
            ("parts", "1,12,1,0,0"),
            ("mtime", "20260131101112.25"),
            ("mode", "644"),
            ("from_cluster", "here"),
            ("topic", "v02.post.a"),
        ],
    );
    assert_eq!(file.rel_path, path(b"a/b c#d"));
    assert_eq!(file.base_url.as_str(), "sftp://u@h/x y");
    assert_eq!((file.size, file.mode), (Some(12), Some(0o644)));
    assert_eq!(file.mtime.map(|mtime| mtime.nsec), Some(250_000_000));
    assert_eq!(
        file.identity.expect("a sum").value,
        "1B2M2Y8AsgTpgAmY7PhCfg=="
    );
    assert_eq!(
        file.others,
        *json!({"from_cluster": "here"}).as_object().expect("one")
    );
    let bytes = |text: &str| Some(text.as_bytes().to_vec());
    for (sum, more, expected) in [
        (
            "R,0",
            &[][..],
            Some(Operation {
                remove: true,
                ..nothing.clone()
            }),
        ),
        (
            "R,0",
            &[("newname", "/n")],
            Some(Operation {
                remove: true,
                ..nothing.clone()
            }),
        ),
        (
            "r,0",
            &[],
            Some(Operation {
                remove: true,
                directory: true,
                ..nothing.clone()
            }),
        ),
        (
            "m,0",
            &[],
            Some(Operation {
                directory: true,
                ..nothing.clone()
            }),
        ),
        (
            "L,00",
            &[("link", "../t")],
            Some(Operation {
                link: bytes("../t"),
                ..nothing.clone()
            }),
        ),
        (
            "s,00",
            &[("oldname", "/a/old")],
            Some(Operation {
                rename: bytes("/a/old"),
                ..nothing.clone()
            }),
        ),
        ("n,00", &[], None),
        ("z,d", &[], None),
        ("", &[], None),
    ] {
        assert_eq!(read(sum, more).file_op, expected, "{sum} {more:?}");
    }
    assert_eq!(read("z,d", &[]).identity.expect("a sum").value, "md5");
    assert_eq!(read("d,0g", &[]).identity, None);
    for body in [
        "",
        "20260131101112.5 file:/x",
        "20260131101112.5  a",
        "x file:/x a",
        "20260131101112.5 file:/x ../a",
        "20260131101112.5 gopher://x a",
    ] {
        assert!(
            Message::parse_v02(body.as_bytes(), &Headers::new()).is_err(),
            "{body}"
        );
    }
}

#[test]
fn the_content_type_says_which_version_it_is() {
    let v03 = with(json!({})).to_string();
    let v02 = "20260131101112.5 file:/x a";
    for (body, content_type, is_read) in [
        (v03.as_str(), Some(CONTENT_TYPE), true),
        (&v03, Some("application/json; charset=utf-8"), true),
        (&v03, None, true),
        (&v03, Some(CONTENT_TYPE_V02), false),
        (v02, Some(CONTENT_TYPE_V02), true),
        (v02, None, true),
        (v02, Some(CONTENT_TYPE), false),
        ("", None, false),
    ] {
        let read = parse(body.as_bytes(), content_type, &Headers::new());
        assert_eq!(read.is_ok(), is_read, "{body} {content_type:?}");
    }
}
