//! What Prometheus is told of mirrors and agents: as the page has it and the board asks for it, whoever
//! asks, and while nothing can be announced.
#![allow(clippy::disallowed_methods)]

mod common;

use common::agent::Agent;
use common::mirror::Mirror;
use driftless_testkit::scratch::scratch_folder;
use driftless_testkit::{EVENT_MAX, FsKind, Scratch, wait_slowly_until};
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::time::{Duration, Instant};

const SIZE_MIB: u64 = 64;
const FOLLOWING: &str = "detect = [\"fanotify\"]\ndelete = true\n";

/// An address of this host at which nobody listens.
fn free_address() -> SocketAddr {
    let free = TcpListener::bind("127.0.0.1:0").expect("a port");
    free.local_addr().expect("its address")
}

/// What a server answers to a request.
fn asked(address: SocketAddr, request: &[u8]) -> String {
    let mut stream = TcpStream::connect(address).expect("it listens");
    stream.write_all(request).expect("sent");
    let mut answer = String::new();
    // It may hang up on what is too long before all of it is read.
    let _cut_off = stream.read_to_string(&mut answer);
    answer
}

const GET: &[u8] = b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n";

#[test]
fn metrics_are_told_as_the_page_and_the_board_have_them() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    fs::write(source.join("file"), b"content").expect("a file");
    let address = free_address();
    let mirror = Mirror::of(
        &source,
        &format!("{FOLLOWING}[metrics]\nlisten = \"{address}\"\n"),
    );
    mirror.barrier();
    fs::write(source.join("other"), b"more").expect("a file");
    mirror.barrier();
    let told = asked(address, GET);
    let (head, body) = told.split_once("\r\n\r\n").expect("a head and a body");
    assert!(head.starts_with("HTTP/1.1 200 OK"), "{head}");
    assert!(head.contains("text/plain; version=0.0.4"), "{head}");
    let labels = format!(
        "{{job_name=\"test\",replica=\"{}\"}}",
        mirror.replica.display()
    );
    let value = |name: &str| {
        let line = body
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name}{labels} ")));
        line.unwrap_or_else(|| panic!("{name}: {body}"))
            .parse::<f64>()
            .expect("a number")
    };
    assert_eq!(value("driftless_mirror_walks_total"), 1.0);
    assert_eq!(value("driftless_mirror_copied_bytes_total"), 11.0);
    assert_eq!(value("driftless_mirror_left_paths"), 0.0);
    assert!(value("driftless_mirror_lag_seconds_count") >= 1.0);
    check_page(body, "driftless_mirror_");
}

/// The page has each number of a family that is told, and the page and the board have no others.
fn check_page(body: &str, family: &str) {
    let types = body.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    let told: BTreeSet<&str> = types.filter_map(|line| line.split(' ').next()).collect();
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs");
    let page = fs::read_to_string(docs.join("metrics.md")).expect("the page");
    let rows = page.lines().filter_map(|line| line.strip_prefix("| `"));
    let rows = rows.filter_map(|line| line.split('`').next());
    let described: BTreeSet<&str> = rows.filter(|name| name.starts_with(family)).collect();
    assert_eq!(told, described);
    let board = fs::read_to_string(docs.join("grafana/mirror.json")).expect("the board");
    let _valid: Value = serde_json::from_str(&board).expect("JSON");
    for text in [board, page.clone()] {
        let names = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        let names: Vec<&str> = names.filter(|name| name.starts_with(family)).collect();
        assert!(names.len() > 5, "{names:?}");
        for name in names {
            assert!(told.contains(name.trim_end_matches("_bucket")), "{name}");
        }
    }
}

/// The value of a number with these labels.
fn value(address: SocketAddr, name: &str, labels: &str) -> f64 {
    let told = asked(address, GET);
    let begin = format!("{name}{{{labels}}} ");
    let line = told.lines().find_map(|line| line.strip_prefix(&begin));
    let value = line.unwrap_or_else(|| panic!("{begin}: {told}"));
    value.parse().expect("a number")
}

/// A table for a broker that is away: nobody listens there.
fn broker_away(folder: &Path) -> String {
    let credentials = folder.join("credentials");
    fs::write(&credentials, "secret").expect("a file");
    fs::set_permissions(&credentials, fs::Permissions::from_mode(0o600)).expect("changed");
    let broker = format!("amqp://u@{}", free_address());
    format!("[publish]\nbroker = {broker:?}\ncredentials = {credentials:?}\nexchange = \"xs_u\"\n")
}

#[test]
fn how_long_a_mirror_has_not_announced_is_told() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let source = scratch.dir("src");
    fs::write(source.join("file"), b"content").expect("a file");
    let (address, publish) = (free_address(), broker_away(&scratch.dir("keys")));
    let keys = format!("{FOLLOWING}{publish}[metrics]\nlisten = \"{address}\"\n");
    let mirror = Mirror::of(&source, &keys);
    let labels = format!("job_name=\"test\",replica=\"{}\"", mirror.replica.display());
    let of = |name: &str| value(address, &format!("driftless_mirror_{name}"), &labels);
    wait_slowly_until("it says so", || of("is_mute") == 1.0);
    assert!(of("unannounced_changes") > 0.0);
    wait_slowly_until("it waits", || of("unannounced_seconds") > 2.5);
    assert_eq!(of("announcements_total"), 0.0);
    let told = mirror.status()["told"].clone();
    let now = mirror.status()["now"].as_f64().expect("a number");
    let oldest = told["oldest"].as_f64().expect("a number");
    assert!((2.5..600.0).contains(&(now - oldest)), "{told}");
}

#[test]
fn metrics_of_an_agent_are_told_as_the_page_and_the_board_have_them() {
    let folder = scratch_folder();
    let tree = folder.path().join("tree");
    fs::create_dir(&tree).expect("a directory");
    let (address, publish) = (free_address(), broker_away(folder.path()));
    let keys = format!("{publish}[metrics]\nlisten = \"{address}\"\n");
    let agent = Agent::of(&tree, &folder.path().join("mirrors"), &keys);
    let shim = agent.shim();
    shim.say('w', &[&tree.join("file")]);
    let tree_of = format!("agent=\"node\",tree=\"{}\"", tree.display());
    let of = |name: &str| {
        value(
            address,
            &format!("driftless_watch_{name}"),
            "agent=\"node\"",
        )
    };
    wait_slowly_until("it hears", || of("messages_total") == 1.0);
    wait_slowly_until("it says so", || of("is_mute") == 1.0);
    assert!(of("unannounced_paths") > 0.0);
    wait_slowly_until("it waits", || of("unannounced_seconds") > 2.5);
    assert!(value(address, "driftless_watch_waiting_seconds", &tree_of) > 2.5);
    assert!(value(address, "driftless_watch_gaps_total", &tree_of) > 0.0);
    check_page(&asked(address, GET), "driftless_watch_");
    let status = agent.status();
    assert!(status["publisher"]["oldest_ms"].is_u64(), "{status}");
}

#[test]
fn whoever_asks_for_metrics_badly_holds_up_nobody() {
    let scratch = Scratch::new(FsKind::Tmpfs, SIZE_MIB);
    let address = free_address();
    let keys = format!("{FOLLOWING}[metrics]\nlisten = \"{address}\"\n");
    let mirror = Mirror::of(&scratch.dir("src"), &keys);
    assert!(asked(address, b"GET /else HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 404"));
    assert!(asked(address, b"DELETE /metrics HTTP/1.1\r\n\r\n").starts_with("HTTP/1.1 405"));
    let long = [b"GET /metrics HTTP/1.1\r\nX: ", &[b'x'; 100_000][..]].concat();
    assert!(!asked(address, &long).contains("200 OK"));
    // Those who connect and say nothing are more than are answered at once, and are let go.
    let silent: Vec<TcpStream> = (0..64)
        .map(|_| TcpStream::connect(address).expect("it listens"))
        .collect();
    let began = Instant::now();
    while !asked(address, GET).starts_with("HTTP/1.1 200") {
        assert!(began.elapsed() < EVENT_MAX, "nobody is answered");
        std::thread::sleep(Duration::from_millis(100));
    }
    drop(silent);
    mirror.barrier();
    let taken = TcpListener::bind("127.0.0.1:0").expect("a port");
    let taken = taken
        .local_addr()
        .map(|at| (taken, at))
        .expect("its address");
    let keys = format!("{FOLLOWING}[metrics]\nlisten = \"{}\"\n", taken.1);
    let told = Mirror::not_begun(&scratch.dir("src2"), &keys);
    assert!(
        told.stderr_text().contains("cannot listen"),
        "{}",
        told.describe()
    );
}
