//! `driftless cast` over ssh to hosts with networks of their own, `driftless node` there, and the
//! exit codes of both.
//!
//! The hosts share the files of this machine. Each node has a mount namespace, in which its own
//! directory is mounted at the common path.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::agent;
use common::pages::{quoted, read, rows};
use common::programs::signal;
use common::{USER, check_equal, driftless, put, stage, wait_until};
use driftless_testkit::{
    Driftless, FsKind, Lab, Outcome, Running, Scratch, Sshd, attrs, write_program,
};
use rustix::process::Signal;
use serde_json::Value;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

const MIB: usize = 1 << 20;

/// Nodes `n1` and so on, each a host with an ssh server, and a host that casts.
struct Cluster {
    // Dropped in this order: servers end before their hosts.
    servers: Vec<Sshd>,
    lab: Lab,
    folder: Scratch,
    src: PathBuf,
    is_user: bool,
}

impl Cluster {
    fn new(nodes: usize) -> Cluster {
        Cluster::of(nodes, false)
    }

    /// Makes a cluster that an ordinary user uses.
    fn of_user(nodes: usize) -> Cluster {
        Cluster::of(nodes, true)
    }

    fn of(nodes: usize, is_user: bool) -> Cluster {
        let (folder, src, _) = stage();
        let lab = Lab::new(nodes + 1);
        let servers = (0..nodes).map(|at| Sshd::start_on(lab.host(at))).collect();
        let cluster = Cluster {
            servers,
            lab,
            folder,
            src,
            is_user,
        };
        cluster.write_programs();
        cluster
    }

    /// Writes the program in the place of ssh, and the one that starts a node.
    fn write_programs(&self) {
        let all = self.path("all");
        fs::create_dir_all(&all).expect("a folder");
        let mut cases = String::new();
        for (at, server) in self.servers.iter().enumerate() {
            let name = format!("n{}", at + 1);
            fs::create_dir_all(self.path(&name).join("to")).expect("a folder");
            let (client, far) = match self.is_user {
                true => (server.client_of_user(server.address()), "far-user"),
                false => (server.client(), "far"),
            };
            let ssh = client.words();
            cases += &format!("{name}) exec {ssh} {far} -- NODE={name} \"$2\" ;;\n");
            if self.is_user {
                attrs::set_owner(&self.path(&name), USER, USER).expect("chown");
                attrs::set_owner(&self.path(&name).join("to"), USER, USER).expect("chown");
            }
        }
        let ssh =
            format!("#!/bin/sh\nshift\ncase \"$1\" in\n{cases}esac\necho no route >&2\nexit 255\n");
        write_program(&self.path("ssh"), &ssh);
        let folder = self.folder.path().display();
        // A user cannot mount, and has the stores of the nodes at paths of their own.
        let run = match self.is_user {
            true => format!("exec {} \"$@\" --dir {folder}/$NODE/store", agent()),
            false => format!(
                "exec unshare --mount sh -c 'mount --bind {folder}/'$NODE' {folder}/all && exec {} \"$@\"' sh \"$@\"",
                agent()
            ),
        };
        write_program(
            &self.path("agent"),
            &format!("#!/bin/sh\necho $$ > {folder}/$NODE/pid\n{run}\n"),
        );
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// Returns the copy of a node.
    fn copy(&self, node: &str) -> PathBuf {
        let name = self.src.file_name().expect("a name");
        self.path(node).join("to").join(name)
    }

    /// Returns a cast from the last host, without sources and nodes.
    fn program(&self) -> Driftless {
        let host = &self.lab.hosts()[self.servers.len()];
        let words = match self.is_user {
            true => host.words_as(USER, USER),
            false => host.words(),
        };
        driftless().through(words).arg("cast")
    }

    fn cast(&self, nodes: &str) -> Driftless {
        let cast = self.program().arg("--json");
        let cast = cast.arg(&self.src).args(["--nodes", nodes]);
        let cast = cast.arg("--to").arg(self.path("all").join("to"));
        let cast = cast.arg("--node-dir").arg(self.path("all").join("store"));
        self.connected(cast)
    }

    fn cast_to_cache(&self, nodes: &str) -> Driftless {
        let cast = self.program().arg(&self.src).arg("--to-cache");
        let cast = cast.args(["--nodes", nodes, "--node-dir"]);
        self.connected(cast.arg(self.path("all").join("store")))
    }

    fn connected(&self, cast: Driftless) -> Driftless {
        let cast = cast.arg("--ssh").arg(self.path("ssh"));
        let cast = cast.arg("--agent-path").arg(self.path("agent"));
        cast.arg("--dir").arg(self.path("source-store"))
    }

    /// Returns the number of the process of a node, once it runs.
    fn pid(&self, node: &str) -> u32 {
        let file = self.path(node).join("pid");
        wait_until("the node starts", || file.exists());
        let read = || fs::read_to_string(&file).ok()?.trim().parse().ok();
        wait_until("the node has a number", || read().is_some());
        read().expect("a number")
    }

    /// Returns a command about the store of a node, which runs on the node. The store knows places by
    /// their paths there.
    fn inside(&self, node: &str, words: &[&str]) -> Outcome {
        let (own, all) = (self.path(node), self.path("all"));
        let mount = format!(
            "mount --bind {} {} && exec \"$@\"",
            own.display(),
            all.display()
        );
        let wrapper = ["unshare", "--mount", "sh", "-c", &mount, "sh"];
        let program = driftless().through(wrapper).arg("node").args(words);
        program.arg("--dir").arg(all.join("store")).run()
    }

    /// Returns a command about the store of a node.
    fn node(&self, node: &str, words: &[&str]) -> Outcome {
        let dir = self.path(node).join("store");
        let program = match self.is_user {
            true => driftless().through(self.lab.hosts()[0].words_as(USER, USER)),
            false => driftless(),
        };
        program.arg("node").args(words).arg("--dir").arg(dir).run()
    }
}

/// Returns bytes of which no two units are alike.
fn random(bytes: usize) -> Vec<u8> {
    let mut content = vec![0; bytes];
    fastrand::Rng::with_seed(bytes as u64).fill(&mut content);
    content
}

/// Writes a tree with each kind of entry that an ordinary user can make.
fn fill(src: &Path) {
    put(&src.join("large"), random(3 * MIB + 5));
    for number in 0..50 {
        put(&src.join(format!("small/{number}")), number.to_string());
    }
    fs::hard_link(src.join("large"), src.join("link")).expect("a link");
    std::os::unix::fs::symlink("large", src.join("symlink")).expect("a symlink");
    fs::create_dir(src.join("empty")).expect("a folder");
}

fn lacking(outcome: &Outcome) -> Value {
    outcome.events_named("summary")[0]["nodes_lacking"].clone()
}

/// Waits until a node has received content.
fn wait_for_content(running: &Running, place: &Path) {
    wait_until("content arrives", || {
        assert!(!running.ends_within(std::time::Duration::ZERO), "it ended");
        blocks_below(place) > 1024
    });
}

/// Returns the blocks of 512 bytes that the files below a directory occupy.
fn blocks_below(folder: &Path) -> u64 {
    use std::os::unix::fs::MetadataExt;
    let Ok(entries) = fs::read_dir(folder) else {
        return 0;
    };
    let blocks = |entry: fs::DirEntry| match entry.metadata() {
        Ok(meta) if meta.is_dir() => blocks_below(&entry.path()),
        Ok(meta) => meta.blocks(),
        Err(_) => 0,
    };
    entries.flatten().map(blocks).sum()
}

#[test]
fn cast_reaches_each_node() {
    let cluster = Cluster::new(3);
    fill(&cluster.src);
    let outcome = cluster.cast("n[1-3]").arg("-v").run().expect(0);
    for node in ["n1", "n2", "n3"] {
        check_equal(&cluster.src, &cluster.copy(node), node);
    }
    let summary = &outcome.events_named("summary")[0];
    assert_eq!(summary["nodes_complete"], 3);
    assert_eq!(summary["exit_code"], 0);
    assert_eq!(lacking(&outcome), serde_json::json!([]));
    let ended = outcome.events_named("ended");
    let set = &summary["set"];
    assert!(ended.len() == 3 && ended.iter().all(|node| node["set"] == *set));
    check_documented(&outcome);
}

/// Compares the fields of all events with the table of the page.
fn check_documented(outcome: &Outcome) {
    let page = read("docs/cast-json.md");
    let table = rows(&page, "## Events");
    for event in outcome.events() {
        let name = event["event"].as_str().expect("a name");
        let row = table.iter().find(|row| quoted(row[0]) == [name]);
        let row = row.unwrap_or_else(|| panic!("{name} is not documented"));
        let documented: BTreeSet<String> = quoted(row[1]).into_iter().collect();
        let fields = event.as_object().expect("an object").keys();
        for field in fields.filter(|field| *field != "event") {
            assert!(documented.contains(field), "{name}: {field}");
        }
    }
}

#[test]
fn second_cast_sends_nothing() {
    let cluster = Cluster::new(2);
    fill(&cluster.src);
    let _ = cluster.cast("n1,n2").run().expect(0);
    let outcome = cluster.cast("n1,n2").run().expect(0);
    for node in outcome.events_named("ended") {
        assert_eq!(node["received_bytes"], 0, "{node}");
        assert!(node["held_bytes"].as_u64() > Some(3 * MIB as u64), "{node}");
    }
}

#[test]
fn killed_node_alone_lacks_the_set() {
    let cluster = Cluster::new(3);
    put(&cluster.src.join("large"), random(12 * MIB));
    let running = cluster.cast("n[1-3]").args(["--bwlimit", "2M"]).spawn();
    wait_for_content(&running, &cluster.path("n2"));
    // A copy cannot start again: the host is gone.
    fs::remove_file(cluster.path("agent")).expect("the program");
    signal(cluster.pid("n2"), Signal::KILL);
    let outcome = running.wait().expect(3);
    assert_eq!(lacking(&outcome), serde_json::json!(["n2"]));
    let text = outcome.stderr_text();
    assert!(text.contains("1 node lacks the data set: n2"), "{text}");
    for node in ["n1", "n3"] {
        check_equal(&cluster.src, &cluster.copy(node), node);
    }
    assert!(!cluster.copy("n2").exists());
}

#[test]
fn interrupted_cast_continues() {
    let cluster = Cluster::new(2);
    put(&cluster.src.join("large"), random(12 * MIB));
    let running = cluster.cast("n[1-2]").args(["--bwlimit", "2M"]).spawn();
    wait_for_content(&running, &cluster.path("n1"));
    running.signal(Signal::INT);
    let _ = running.wait().expect(130);
    assert!(!cluster.copy("n1").exists());
    let _ = cluster.cast("n[1-2]").run().expect(0);
    for node in ["n1", "n2"] {
        check_equal(&cluster.src, &cluster.copy(node), node);
    }
}

#[test]
fn copy_that_arrives_is_not_purged() {
    let cluster = Cluster::new(1);
    put(&cluster.src.join("large"), random(12 * MIB));
    let running = cluster.cast("n1").args(["--bwlimit", "2M"]).spawn();
    wait_for_content(&running, &cluster.path("n1"));
    let refused = cluster.inside("n1", &["purge", "--all"]).expect(11);
    let text = refused.stderr_text();
    assert!(text.contains("another process is at work there"), "{text}");
    running.signal(Signal::INT);
    let _ = running.wait().expect(130);
}

#[test]
fn copy_that_feeds_is_not_purged() {
    let cluster = Cluster::new(2);
    put(&cluster.src.join("large"), random(12 * MIB));
    let _ = cluster.cast("n1").run().expect(0);
    let running = cluster.cast("n[1-2]").args(["--bwlimit", "2M"]).spawn();
    wait_for_content(&running, &cluster.path("n2"));
    let _ = cluster.inside("n1", &["purge", "--all"]).expect(11);
    assert!(cluster.copy("n1").join("large").exists());
    running.signal(Signal::INT);
    let _ = running.wait().expect(130);
}

#[test]
fn disk_that_fills_up_fails_its_node_alone() {
    let cluster = Cluster::new(3);
    for number in 0..12 {
        put(&cluster.src.join(number.to_string()), random(MIB + number));
    }
    let small = Scratch::new(FsKind::Tmpfs, 24);
    fs::create_dir(small.path().join("to")).expect("a folder");
    fs::remove_dir_all(cluster.path("n2")).expect("removed");
    std::os::unix::fs::symlink(small.path(), cluster.path("n2")).expect("a link");
    let running = cluster.cast("n[1-3]").args(["--bwlimit", "2M"]).spawn();
    wait_for_content(&running, &cluster.path("n2").join("to"));
    let filler = small.path().join("filler");
    fill_disk(&filler);
    let outcome = running.wait().expect(3);
    assert_eq!(lacking(&outcome), serde_json::json!(["n2"]));
    let text = outcome.stderr_text();
    assert!(
        text.contains("n2: ") && text.contains("no room: "),
        "{text}"
    );
    assert!(text.contains("make room"), "{text}");
    for node in ["n1", "n3"] {
        check_equal(&cluster.src, &cluster.copy(node), node);
    }
    assert!(!cluster.copy("n2").exists());
    fs::remove_file(filler).expect("removed");
    let outcome = cluster.cast("n[1-3]").run().expect(0);
    check_equal(&cluster.src, &cluster.copy("n2"), "n2");
    let ended = outcome.events_named("ended");
    let ended = ended.iter().find(|event| event["node"] == "n2");
    let bytes = |field: &str| ended.and_then(|event| event[field].as_u64());
    let (held, received) = (bytes("held_bytes"), bytes("received_bytes"));
    let all = (0..12).map(|number| (MIB + number) as u64).sum::<u64>();
    assert!(held > Some(0), "{outcome:?}");
    assert_eq!(held.zip(received).map(|(a, b)| a + b), Some(all));
}

/// Writes a file until the disk is full.
fn fill_disk(filler: &Path) {
    use std::io::Write;
    let mut file = fs::File::create(filler).expect("a file");
    for block in [vec![1; 1 << 16], vec![1]] {
        while file.write_all(&block).is_ok() {}
    }
}

#[test]
fn unreachable_node_is_named() {
    let cluster = Cluster::new(1);
    fill(&cluster.src);
    let outcome = cluster
        .cast("n1,n9")
        .args(["--join-wait", "3"])
        .run()
        .expect(3);
    assert_eq!(lacking(&outcome), serde_json::json!(["n9"]));
    let text = outcome.stderr_text();
    let line = "n9: ssh: no route; it did not connect within 3 s";
    assert_eq!(text.matches(line).count(), 1, "{text}");
    check_equal(&cluster.src, &cluster.copy("n1"), "n1");
}

#[test]
fn dead_node_is_reported_at_the_first_attempt() {
    let cluster = Cluster::new(1);
    fill(&cluster.src);
    let cast = cluster.program().arg(&cluster.src).args(["--nodes", "n9"]);
    let cast = cast.args(["--to-cache", "--join-wait", "2"]);
    let outcome = cluster.connected(cast).run().expect(3);
    let text = outcome.stderr_text();
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(
        lines,
        [
            "driftless: n9: ssh: no route; trying again for 2 s (--join-wait)",
            "driftless: n9: ssh: no route; it did not connect within 2 s",
            "driftless: 1 node lacks the data set: n9",
        ]
    );
}

#[test]
fn missing_program_ends_the_wait_at_once() {
    let cluster = Cluster::new(1);
    fill(&cluster.src);
    let cast = cluster.program().arg(&cluster.src).args(["--nodes", "n1"]);
    let cast = cast.args(["--to-cache", "--ssh"]).arg(cluster.path("ssh"));
    let cast = cast.args(["--agent-path", "/missing", "--join-wait", "1000"]);
    let cast = cast.arg("--dir").arg(cluster.path("source-store"));
    let text = cast.run().expect(3).stderr_text();
    let begin = "driftless: n1: cannot start driftless there: ";
    let end = "; install it, or add --agent-path or --deploy";
    let lines: Vec<&str> = text.lines().collect();
    assert_eq!(lines.len(), 2, "{text}");
    assert!(
        lines[0].starts_with(begin) && lines[0].ends_with(end),
        "{text}"
    );
}

#[test]
fn failed_and_dead_node_end_the_cast() {
    let cluster = Cluster::new(1);
    fill(&cluster.src);
    put(&cluster.copy("n1").join("own"), "mine");
    let cast = cluster.cast("n1,n9").args(["--join-wait", "2"]);
    let outcome = cast.run().expect(3);
    assert_eq!(lacking(&outcome), serde_json::json!(["n1", "n9"]));
    assert!(cluster.copy("n1").join("own").exists());
}

#[test]
fn ordinary_user_casts_into_caches() {
    let cluster = Cluster::of_user(2);
    fill(&cluster.src);
    let store = cluster.path("source-store");
    fs::create_dir(&store).expect("a folder");
    attrs::set_owner(&store, USER, USER).expect("chown");
    attrs::set_mode(&store, 0o700).expect("chmod");
    let cast = cluster.program().arg("--json").arg(&cluster.src);
    let cast = cast.args(["--nodes", "n1,n2", "--to-cache", "--job", "j"]);
    let outcome = cluster.connected(cast).run().expect(0);
    assert_eq!(lacking(&outcome), serde_json::json!([]));
    let status = cluster.node("n1", &["status", "--json"]).expect(0);
    let status: Value = serde_json::from_str(&status.stdout_text()).expect("an object");
    assert_eq!(status["copies"][0]["jobs"], serde_json::json!(["j"]));
}

#[test]
fn copies_are_verified_and_purged() {
    let cluster = Cluster::new(1);
    fill(&cluster.src);
    let _ = cluster.cast("n1").run().expect(0);
    let inside = |words: &[&str]| cluster.inside("n1", words);
    let status = inside(&["status"]).expect(0).stdout_text();
    assert!(
        status.contains("complete") && status.contains("daemon: does not run"),
        "{status}"
    );
    let _ = inside(&["verify"]).expect(0);
    put(&cluster.copy("n1").join("small/7"), "other");
    let verified = inside(&["verify"]).expect(4);
    let (found, remedy) = (verified.stdout_text(), verified.stderr_text());
    assert!(found.contains("small/7"), "{found}");
    assert!(
        remedy.contains("1 damaged copy: repeat the cast"),
        "{remedy}"
    );
    let _ = inside(&["purge"]).expect(2);
    put(&cluster.copy("n1").join("own"), "mine");
    let purged = inside(&["purge", "--all"]).expect(3).stderr_text();
    let reason = "\": stays: it holds entries that driftless did not place, such as \"own\"";
    assert!(purged.contains(reason), "{purged}");
    assert!(cluster.copy("n1").join("own").exists());
    assert!(!cluster.copy("n1").join("large").exists());
}

#[test]
fn purge_names_each_copy_that_stays() {
    let cluster = Cluster::new(1);
    fill(&cluster.src);
    let _ = cluster.cast("n1").run().expect(0);
    let _ = cluster.cast_to_cache("n1").run().expect(0);
    let to = cluster.path("n1").join("to");
    fs::rename(&to, cluster.path("n1").join("moved")).expect("moved");
    fs::create_dir(&to).expect("a folder");
    let purged = cluster.inside("n1", &["purge", "--all"]).expect(3);
    let text = purged.stderr_text();
    assert!(purged.stdout_text().starts_with("1 copy removed: "));
    let verified = cluster.inside("n1", &["verify"]).expect(3).stdout_text();
    assert!(verified.starts_with("not checked: copy 1: "), "{verified}");
    assert!(text.contains("driftless: copy 1: \"") && text.lines().count() == 1);
    let purged = cluster.inside("n1", &["purge", "--set", "0123456789ab"]);
    assert!(
        purged
            .expect(3)
            .stderr_text()
            .contains("no copy of this node has the hash")
    );
    let purged = cluster.inside("n1", &["purge", "--all", "--json"]);
    let summary = purged.expect(3).stdout_text();
    let summary: Value = serde_json::from_str(&summary).expect("an object");
    assert_eq!(summary["staying"][0]["copy"], 1, "{summary}");
    assert_eq!(summary["copies"], 0, "{summary}");
}

/// Returns the commands in the `sh` blocks of the page, each on one line.
fn page_commands() -> Vec<String> {
    let page = read("docs/cast.md");
    let blocks = page.split("```sh\n").skip(1);
    let blocks = blocks.filter_map(|rest| Some(rest.split_once("```")?.0));
    let joined: Vec<String> = blocks.map(|block| block.replace("\\\n", " ")).collect();
    let lines = joined.iter().flat_map(|block| block.lines());
    lines.map(str::to_owned).collect()
}

#[test]
fn commands_of_the_page_run() {
    let cluster = Cluster::new(2);
    fill(&cluster.src);
    let begins = [
        "cast ",
        "doctor ",
        "node status",
        "node verify",
        "node purge",
    ];
    let begins = begins.map(|words| format!("driftless {words}"));
    // Another test has daemons.
    let is_run = |line: &String| {
        begins.iter().any(|words| line.starts_with(words)) && !line.contains("--daemons")
    };
    let mut commands: Vec<String> = page_commands().into_iter().filter(is_run).collect();
    assert_eq!(commands.len(), 7, "{commands:?}");
    // The end of the job comes after the questions about its copies.
    commands.sort_by_key(|line| line.contains("purge") && line.contains("--nodes"));
    let page = read("docs/cast.md");
    let racks = page.lines().filter(|line| line.starts_with("SwitchName="));
    let racks = racks.collect::<Vec<_>>().join("\n");
    let racks = racks
        .replace("n[001-064]", "n1")
        .replace("n[065-128]", "n2");
    put(&cluster.path("desk").join("racks.conf"), racks);
    let (all, folder) = (cluster.path("all"), cluster.folder.path().display());
    let text = |path: PathBuf| path.display().to_string();
    let of_page = commands.join("\n");
    let of_page = of_page.replace("/projects/blast/nr", &text(cluster.src.clone()));
    let of_page = of_page.replace("'n[001-128]'", "'n[1-2]'");
    let of_page = of_page.replace("/scratch", &text(all.join("to")));
    let (ssh, agent, store) = (
        cluster.path("ssh"),
        cluster.path("agent"),
        all.join("store"),
    );
    let script = format!(
        r#"set -e; program=$1; cd {folder}/desk
driftless() {{
    local command=$1; shift
    local reach=(--ssh {} --agent-path {} --node-dir {})
    case $command in
    cast) "$program" cast "${{reach[@]}}" --dir {folder}/source-store "$@" ;;
    doctor) "$program" doctor "${{reach[@]}}" --link-time 1 --disk-size 1M "$@" ;;
    node) if [[ "$*" == *--nodes* ]]; then
        "$program" node "$@" "${{reach[@]}}" --cast-dir {folder}/source-store; return
    fi
    unshare --mount sh -c 'mount --bind {folder}/n1 {folder}/all && exec "$@"' \
        sh "$program" node "$@" --dir {} ;;
    esac
}}
{of_page}"#,
        ssh.display(),
        agent.display(),
        store.display(),
        store.display(),
    );
    let mut words = cluster.lab.hosts()[2].words();
    words.extend(["bash", "-c", &script, "bash"].map(String::from));
    let outcome = driftless().through(words).run().expect(0);
    for node in ["n1", "n2"] {
        check_equal(&cluster.src, &cluster.copy(node), node);
    }
    let printed = outcome.stdout_text();
    assert!(printed.contains("job blast-7"), "{printed}");
    assert!(printed.contains("\n1 copy removed"), "{printed}");
    let ended = "job ended on 2 of 2 nodes; 1 copy removed";
    assert!(printed.contains(ended), "{printed}");
    let log = fs::read_to_string(cluster.path("desk").join("cast.log")).expect("the log");
    let last: Value = serde_json::from_str(log.lines().last().expect("a line")).expect("JSON");
    assert_eq!(last["nodes_complete"], 2, "{last}");
}

#[test]
fn daemons_serve_a_known_host() {
    let cluster = Cluster::new(2);
    fill(&cluster.src);
    let store = cluster.path("source-store");
    let key = driftless()
        .args(["node", "key", "--cast-dir"])
        .arg(&store)
        .run();
    let key = key.expect(0).stdout_text();
    let mut lines = String::new();
    let mut daemons = Vec::new();
    for (at, node) in ["n1", "n2"].into_iter().enumerate() {
        let host = cluster.lab.host(at);
        let daemon = driftless()
            .through(host.words())
            .args(["node", "--ports", "7400"]);
        let daemon = daemon.args(["--trust", key.trim(), "--place"]);
        let daemon = daemon.arg(cluster.path(node)).arg("--dir");
        daemons.push(daemon.arg(cluster.path(node).join("store")).spawn());
        let status = || {
            let outcome = cluster.node(node, &["status", "--json"]);
            let value: Value = serde_json::from_str(&outcome.stdout_text()).ok()?;
            value["key"].as_str().map(str::to_owned)
        };
        wait_until("the daemon runs", || status().is_some());
        lines += &format!(
            "{node} {}:7400 {}\n",
            host.address(),
            status().expect("a key")
        );
    }
    put(&cluster.path("daemons"), lines);
    let cast = cluster
        .program()
        .arg(&cluster.src)
        .args(["--nodes", "n[1-2]", "--to-cache"]);
    let cast = cast.arg("--daemons").arg(cluster.path("daemons"));
    let _ = cluster.connected(cast).run().expect(0);
    let other = cluster
        .program()
        .arg(&cluster.src)
        .args(["--nodes", "n1", "--to-cache"]);
    let other = other.arg("--daemons").arg(cluster.path("daemons"));
    let other = other.args(["--join-wait", "3", "--dir"]);
    let refused = other.arg(cluster.path("other-store")).run().expect(3);
    let text = refused.stderr_text();
    assert!(
        text.contains("does not trust this host; add --trust"),
        "{text}"
    );
    let _ = cluster.node("n1", &["purge", "--all"]).expect(0);
    let second = driftless().args(["node", "--trust", key.trim(), "--dir"]);
    let refused = second.arg(cluster.path("n1").join("store")).run();
    let text = refused.expect(11).stderr_text();
    assert!(text.contains("another daemon"), "{text}");
    let mut logs = Vec::new();
    for daemon in daemons {
        daemon.signal(Signal::TERM);
        logs.push(daemon.wait().expect(143).stderr_text());
    }
    check_log(&logs[0]);
}

/// Checks the log of a daemon: one cast, one removed copy, one refused key.
fn check_log(log: &str) {
    for words in [
        ": cast begins: set ",
        ": cast ends: set ",
        " bytes: complete",
        "copy 1 is removed: ",
        ": refused: its key ",
    ] {
        assert_eq!(log.matches(words).count(), 1, "{words}: {log}");
    }
}

#[test]
fn wrong_arguments_are_refused() {
    let (folder, src, _) = stage();
    put(&src.join("file"), "content");
    let store = folder.path().join("store");
    let cast = |words: &[&str]| {
        let cast = driftless().arg("cast").args(words);
        cast.arg("--ssh").arg("/bin/false").arg("--dir").arg(&store)
    };
    let path = src.to_str().expect("a path");
    let inside = store.join("inside");
    let inside = inside.to_str().expect("a path");
    for (words, code, reason) in [
        (&[path, "--nodes", "n1"][..], 2, "<--to <DIR>|--to-cache>"),
        (
            &[path, "--nodes", "n1", "--to", "/x", "--to-cache"],
            2,
            "cannot be used with",
        ),
        (&[path, "--to", "/x"], 2, "--nodes"),
        (&[path, "--nodes", "n1", "--to", "x"], 2, "not absolute"),
        (&[path, "--nodes", "n[2-1]", "--to", "/x"], 2, "--nodes"),
        (
            &[path, "--nodes", "@/missing", "--to", "/x"],
            2,
            "--nodes @/missing: cannot read the file \"/missing\": no such file",
        ),
        (
            &[path, "--nodes", "n1", "--to", "/x", "--topology", path],
            2,
            "cannot read",
        ),
        (
            &[path, "--nodes", "n1", "--to", "/x", "--ports", "9-8"],
            2,
            "7400-7449",
        ),
        (
            &[path, "--nodes", "n1", "--to", "/x", "--ca", path],
            2,
            "--cert",
        ),
        (
            &[path, "--nodes", "n1", "--to", "/x", "--deploy=/missing"],
            2,
            "--deploy \"/missing\": cannot read: no such file",
        ),
        (
            &[path, "--nodes", "n1", "--to", "/x", "--deploy=/bin/sh"],
            2,
            "--deploy \"/bin/sh\" is dynamically linked",
        ),
        (&[path, "--nodes", "-oX", "--to", "/x"], 2, "--nodes: -oX"),
        (
            &[path, "--nodes", "n1", "--to", "/x", "--ttl", "7d"],
            2,
            "--ttl",
        ),
        (
            &[path, "--nodes", "n1", "--to-cache", "--job", ""],
            2,
            "--job",
        ),
        (
            &[path, "--nodes", "n1", "--to-cache", "--job", "a\nb"],
            2,
            "--job",
        ),
        (
            &["/missing", "--nodes", "n1", "--to", "/x"],
            1,
            "\"/missing\": cannot look at it: no such file or directory; check SRC",
        ),
        (
            &["n1:/data", "--nodes", "n1", "--to", "/x"],
            2,
            "n1:/data: a source must be on this host; run the cast on n1",
        ),
        (
            &[inside, "--nodes", "n1", "--to", "/x"],
            13,
            "another directory",
        ),
    ] {
        fs::create_dir_all(inside).expect("a folder");
        attrs::set_mode(&store, 0o700).expect("chmod");
        let outcome = cast(words).run().expect(code);
        let text = outcome.stderr_text();
        assert!(text.contains(reason), "{words:?}: {text}");
    }
}

#[test]
fn values_that_cannot_be_meant_are_refused() {
    let (folder, _, _) = stage();
    for (words, reason) in [
        (&["node", "--cache-max", "500"][..], "the unit is missing"),
        (
            &["doctor", "--nodes", "n1", "--link-time", "0"],
            "above zero",
        ),
    ] {
        let outcome = driftless().args(words).run().expect(2);
        let text = outcome.stderr_text();
        assert!(text.contains(reason), "{words:?}: {text}");
    }
    let node = driftless().args(["node", "--trust", &"ab".repeat(32)]);
    let node = node.args(["--place", "/nonexist", "--dir"]);
    let daemon = node.arg(folder.path().join("store")).spawn();
    wait_until("the daemon runs", || {
        folder.path().join("store/node.sock").exists()
    });
    daemon.signal(Signal::TERM);
    let text = daemon.wait().expect(143).stderr_text();
    let warning = "--place \"/nonexist\": no such directory; casts to it fail until it exists";
    assert!(text.contains(warning), "{text}");
}

#[test]
fn nodes_that_the_topology_lacks_are_named() {
    let (folder, src, _) = stage();
    put(&src.join("file"), "content");
    let racks = folder.path().join("racks");
    put(&racks, "n1 top/rack1\n");
    let cast = driftless()
        .arg("cast")
        .arg(&src)
        .args(["--nodes", "n[1-3]"]);
    let cast = cast.args(["--to", "/x", "--ssh", "/bin/false", "--join-wait", "0"]);
    let cast = cast.arg("--topology").arg(&racks).arg("--dir");
    let text = cast.arg(folder.path().join("store")).run().stderr_text();
    assert!(text.contains("it has no switch of n2, n3; "), "{text}");
}

#[test]
fn store_within_a_source_is_not_made() {
    let (_folder, src, _) = stage();
    put(&src.join("file"), "content");
    let store = src.join("store");
    let cast = driftless().arg("cast").arg(&src).args(["--nodes", "n1"]);
    let cast = cast.args(["--to", "/x", "--ssh", "/bin/false", "--dir"]);
    let outcome = cast.arg(&store).run().expect(13);
    assert!(!store.exists(), "{}", outcome.stderr_text());
}

#[test]
fn store_that_cannot_be_made_is_named() {
    let (_folder, src, _) = stage();
    put(&src.join("file"), "content");
    let cast = driftless().arg("cast").arg(&src).args(["--nodes", "n1"]);
    let cast = cast.args(["--to", "/x", "--ssh", "/bin/false", "--dir", "/proc/x"]);
    let text = cast.run().expect(1).stderr_text();
    assert!(text.contains("/proc/x") && text.contains("--dir"), "{text}");
}

#[test]
fn purge_of_an_unknown_copy_exits_with_3() {
    let (folder, _, _) = stage();
    let store = folder.path().join("store");
    fs::create_dir(&store).expect("a folder");
    let unknown = "ab".repeat(32);
    for (words, code) in [
        (&["999"][..], 3),
        (&["--job", "nosuch"], 3),
        (&["--set", &unknown], 3),
        (&["--all"], 0),
    ] {
        let purge = driftless().args(["node", "purge"]).args(words);
        let outcome = purge.arg("--dir").arg(&store).run().expect(code);
        let text = outcome.stderr_text();
        assert_eq!(text.contains("no copy of this node"), code == 3, "{text}");
    }
    let verify = driftless().args(["node", "verify", "999", "--dir"]);
    let text = verify.arg(&store).run().expect(3).stderr_text();
    assert!(text.contains("no copy of this node has the number 999"));
}

#[test]
fn purge_at_nodes_ends_a_job_only() {
    let purge = |words: &[&str]| {
        let purge = driftless().args(["node", "purge", "--nodes", "n1"]);
        purge.args(["--ssh", "/bin/false"]).args(words).run()
    };
    for words in [&["--all"][..], &["3"], &["--job", "a", "--dir", "/x"]] {
        let refused = purge(words).expect(2).stderr_text();
        assert!(
            refused.contains("cannot be used with"),
            "{words:?}: {refused}"
        );
    }
    let failed = purge(&["--job", "a"]).expect(3);
    let text = failed.stderr_text();
    assert!(text.contains("n1: cannot start driftless there"), "{text}");
}

#[test]
fn full_standard_output_is_an_error() {
    let cluster = Cluster::new(1);
    fill(&cluster.src);
    let line = ["sh", "-c", "exec \"$@\" > /dev/full", "sh"];
    let host = &cluster.lab.hosts()[1];
    let words: Vec<String> = host
        .words()
        .into_iter()
        .chain(line.map(String::from))
        .collect();
    let cast = driftless().through(words).arg("cast").arg(&cluster.src);
    let cast = cast.args(["--nodes", "n1"]);
    let cast = cast.arg("--to").arg(cluster.path("all").join("to"));
    let cast = cast
        .arg("--node-dir")
        .arg(cluster.path("all").join("store"));
    let outcome = cluster.connected(cast).run().expect(1);
    assert!(outcome.stderr_text().contains("standard output"));
}

#[test]
fn node_without_trust_is_refused() {
    let (folder, _, _) = stage();
    let store = folder.path().join("store");
    let outcome = driftless()
        .args(["node", "--dir"])
        .arg(&store)
        .run()
        .expect(2);
    assert!(outcome.stderr_text().contains("--trust"));
    let node = |words: &[&str]| {
        let node = driftless().arg("node").args(words).arg("--dir");
        node.arg(&store).run().expect(1).stderr_text()
    };
    assert!(node(&["status"]).contains("no cast has placed anything here (store \""));
    assert!(node(&["verify"]).contains("cannot open"));
    let key = "ab".repeat(32);
    let both = driftless().args(["node", "--coordinator", "x", "--trust", &key]);
    let text = both.run().expect(2).stderr_text();
    assert!(text.contains("cannot be used with"), "{text}");
}
