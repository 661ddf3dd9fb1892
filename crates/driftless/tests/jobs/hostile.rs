//! A hostile user beside a victim: through the sockets of the gateway and of the nodes, the paths of
//! copies and outboxes, comments of jobs, patterns and names of results. Each attempt is refused, and
//! the jobs of the victim end as they should.

use crate::cluster::must;
use crate::site::{OTHER, USER, bin};
use driftless_testkit::{Slurm, wait_slowly_until, wait_until};
use std::fs::{self, Permissions};
use std::io::{BufRead, BufReader};
use std::os::unix::fs::{FileTypeExt, MetadataExt, PermissionsExt, chown};
use std::path::{Path, PathBuf};
use std::process::{Child, Stdio};

type Site = crate::site::Site<Slurm>;

const CLIENT: &str = include_str!("hostile.py");
const SECRET: &str = "nobody else reads this\n";
/// Leaves a result with the secret, and waits for a file.
const VICTIM: &str = r#"#!/bin/sh
out="$RESULTS_DIRECTORY/$SLURM_ARRAY_TASK_ID"
mkdir -p "$out" && cat "$SPOOL_DIRECTORY"/*/secret >"$out/secret" || exit 1
while [ ! -e "$1" ]; do sleep 0.1; done
"#;
/// Leaves results that lead to the secret of the victim $1, and names that no reader expects.
const HOSTILE: &str = r#"#!/bin/sh
out="$RESULTS_DIRECTORY/7"
mkdir -p "$out" && cd "$out" || exit 1
ln -s "$1" link
ln -s / root
ln "$1" hard 2>/dev/null
mkfifo pipe
echo '#!/bin/sh' >setuid && chmod 6755 setuid
echo 1 >"$(printf 'two\nlines')"
mkdir ... && echo 2 >.../-rf
mkdir closed && echo 3 >closed/file && chmod 500 closed
ln -s "$1" "$RESULTS_DIRECTORY/8"
echo done >last
"#;

/// The jobs of the victim.
struct Victim {
    running: String,
    held: String,
    home: PathBuf,
    /// Path of the data of the running job on nodes.
    spool: PathBuf,
}

fn make_secret(site: &Site, name: &str) {
    site.make_data(name, 1 << 16);
    let path = site.shared().join(name).join("secret");
    fs::write(&path, SECRET).expect("a file");
    fs::set_permissions(&path, Permissions::from_mode(0o600)).expect("closed");
    chown(&path, Some(USER), Some(USER)).expect("given");
}

fn set_mode(path: &Path, mode: u32) {
    fs::set_permissions(path, Permissions::from_mode(mode)).expect("set");
}

fn make_own(site: &Site, uid: u32, name: &str) -> PathBuf {
    let path = site.make_out(name);
    set_mode(&path, 0o700);
    chown(&path, Some(uid), Some(uid)).expect("given");
    path
}

impl Victim {
    /// Starts a job that runs, and one that stays held.
    fn start(site: &Site) -> Victim {
        make_secret(site, "nr");
        make_secret(site, "later");
        // The job stays held: the user cannot read all of its data.
        let closed = site.shared().join("later/closed");
        fs::create_dir(&closed).expect("a folder");
        set_mode(&closed, 0);
        let home = make_own(site, USER, "home");
        let script = site.script("victim.sh", VICTIM);
        let (pattern, go) = (home.join("%j/%t"), site.shared().join("go"));
        let pattern = pattern.display().to_string();
        let submit = |data| {
            site.submit(USER, &[data], &["--results", &pattern], |sbatch| {
                sbatch.arg("--array=1-2").arg(&script).arg(&go);
            })
        };
        let (running, held) = (submit("nr"), submit("later"));
        site.wait_for_stage(&running, "released");
        site.wait_for_fault(&held, "ermission denied");
        let tasks = || state_of(site, &running) == "RUNNING\nRUNNING";
        wait_slowly_until("both tasks run", tasks);
        let spool = site.spool_of(&running);
        Victim {
            running,
            held,
            home,
            spool,
        }
    }

    fn check_untouched(&self, site: &Site) {
        assert_eq!(site.stage_of(&self.running), "released");
        assert_eq!(site.stage_of(&self.held), "loading");
        assert_eq!(state_of(site, &self.running), "RUNNING\nRUNNING");
        assert_eq!(state_of(site, &self.held), "PENDING");
    }
}

fn state_of(site: &Site, job: &str) -> String {
    let queue = site.cluster.run("squeue", &["-h", "-j", job, "-o", "%T"]);
    queue.trim().to_owned()
}

/// Runs the hostile client with some words, as a user.
fn client(site: &Site, uid: u32, socket: &Path, words: &[&str]) -> String {
    let mut client = site.cluster.command_as(uid, uid, "/usr/bin/python3");
    client.args(["-c", CLIENT]).arg(socket).args(words);
    String::from_utf8(must(&mut client).stdout).expect("text")
}

fn check_messages(site: &Site, victim: &Victim) {
    for job in [&victim.running, &victim.held] {
        let mark = site.job(job)["mark"].as_str().expect("a mark").to_owned();
        let answers = client(site, OTHER, &site.socket(), &["ask", &mark]);
        for line in answers.lines() {
            let (name, answer) = line.split_once(' ').expect("two words");
            match name {
                "confirm" | "abandon" => assert!(answer.contains("no such job"), "{line}"),
                "jobs" => assert_eq!(answer, r"b'\x02\x00'", "no jobs"),
                _ => assert_eq!(answer, "b'closed'", "{line}"),
            }
        }
        assert_eq!(answers.lines().count(), 10, "{answers}");
    }
    for command in ["jobs", "results"] {
        let mut list = site.cluster.command_as(OTHER, OTHER, bin());
        list.args([command, "--json"]);
        if command == "jobs" {
            list.arg("--all");
        }
        let listed = must(list.arg("--gateway").arg(site.socket()));
        assert_eq!(String::from_utf8_lossy(&listed.stdout), "", "{command}");
    }
}

/// Holds many connections of the hostile user.
fn flood(site: &Site) -> Child {
    let mut flood = site.cluster.command_as(OTHER, OTHER, "/usr/bin/python3");
    flood.args(["-c", CLIENT]).arg(site.socket()).arg("flood");
    let flood = flood.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut flood = flood.spawn().expect("/usr/bin/python3");
    let mut line = String::new();
    let output = flood.stdout.take().expect("a pipe");
    BufReader::new(output).read_line(&mut line).expect("a line");
    assert_eq!(line, "ready\n");
    flood
}

/// Returns a script for each attempt on a node and on the host of the gateway.
fn attempts(site: &Site, victim: &Victim) -> Vec<(&'static str, String)> {
    let (store, spool) = (site.store(), &victim.spool);
    let name = spool.file_name().expect("a name").to_string_lossy();
    let (store, spool, bin) = (store.display(), spool.display(), bin());
    let shared = site.shared();
    let shared = shared.display();
    let remote = format!(
        "{bin} node purge --job {name} --nodes n1 --daemons {shared}/nodes.txt --cast-dir {shared}/evil/cast"
    );
    let on_node = [
        format!("cat {spool}/nr/secret"),
        format!("cat {spool}/nr/name"),
        format!("ls {spool}/nr/"),
        format!("cat {store}/sets/*/nr/secret"),
        format!("ls {store}/sets"),
        format!("ls {store}/outbox"),
        format!("ls {store}/outbox/{name}/"),
        format!("cat {store}/outbox/{name}/1/secret"),
        format!("ls {store}/outbox/.sealed"),
        format!("ls {store}/outbox/.sealed/{name}/"),
        format!("mkdir {store}/outbox/evil"),
        format!("touch {store}/outbox/{name}/9"),
        format!("ln -s /etc {store}/jobs/evil"),
        format!("mv {spool} {spool}.away"),
        format!("rm {spool}"),
        format!("touch {store}/evil"),
        format!("{bin} node --dir {store} status"),
        format!("{bin} node --dir {store} purge --job {name}"),
        format!("{bin} node --dir {store} purge --all"),
        format!("{bin} node --dir {store} verify"),
    ];
    let on_head = [
        format!("cat {shared}/gateway/jobs.db"),
        format!("cat {shared}/gateway/cast/*"),
        format!("ls {shared}/gateway-relay"),
        format!("touch {shared}/gateway-relay/evil"),
        format!("rm -f {shared}/gateway.sock"),
        format!("scancel {}", victim.held),
        remote,
        format!(
            "{bin} cast /etc/hostname --nodes n1 --daemons {shared}/nodes.txt --dir {shared}/evil/cast"
        ),
    ];
    let of = |place: &'static str| move |script| (place, script);
    let on_node = on_node.into_iter().map(of("n1"));
    on_node.chain(on_head.into_iter().map(of("head"))).collect()
}

/// Submits jobs of the hostile user: with the data of the victim, with the comment of the victim's job,
/// and with a comment that is no text.
fn check_jobs(site: &Site, victim: &Victim) {
    let evil = site.shared().join("evil");
    std::os::unix::fs::symlink(site.shared().join("nr"), evil.join("nr")).expect("a link");
    let script = site.script("hostile.sh", HOSTILE);
    let stolen = site.try_submit(OTHER, &["evil/nr"], &[], |sbatch| {
        sbatch.arg(&script).arg(&victim.spool);
    });
    let text = String::from_utf8_lossy(&stolen.stderr);
    assert!(text.contains("no job was submitted"), "{text}");
    let mark = site.job(&victim.held)["mark"]
        .as_str()
        .expect("a mark")
        .to_owned();
    let comment = format!("--comment=driftless:{mark}");
    let raw = "--comment=\"$(printf '\\377\\n\\037driftless:')\"";
    for option in [comment.as_str(), raw] {
        let script = format!("sbatch --hold --wrap=true --output=/dev/null {option}");
        let mut sbatch = site.cluster.command_as(OTHER, OTHER, "sh");
        must(sbatch.args(["-c", &script]));
    }
}

/// Submits jobs with results that lead elsewhere. Returns their numbers.
fn submit_results(site: &Site, victim: &Victim) -> [String; 2] {
    site.make_data_of(OTHER, "own", 1000);
    let mine = make_own(site, OTHER, "mine");
    let script = site.shared().join("hostile.sh");
    let patterns = [mine.join("%j/%t"), victim.home.join("evil/%t")];
    patterns.map(|pattern| {
        let pattern = pattern.display().to_string();
        site.submit(OTHER, &["own"], &["--results", &pattern], |sbatch| {
            sbatch.arg(&script).arg(victim.spool.join("nr/secret"));
        })
    })
}

/// Checks that links of results are links, and that no content of the victim came with them.
fn check_results(site: &Site, job: &str) {
    let results = site.shared().join("mine").join(job).join("7");
    let kind = |name: &str| fs::symlink_metadata(results.join(name)).expect("there");
    for link in ["link", "root"] {
        assert!(kind(link).is_symlink(), "{link}");
    }
    assert!(kind("pipe").file_type().is_fifo());
    assert_eq!(kind("setuid").uid(), OTHER);
    assert_eq!(
        fs::read_to_string(results.join("two\nlines")).expect("there"),
        "1\n"
    );
    assert_eq!(
        fs::read_to_string(results.join(".../-rf")).expect("there"),
        "2\n"
    );
    let mut grep = site.cluster.command("grep");
    grep.args(["-rlF", SECRET.trim()])
        .arg(site.shared().join("mine"));
    let found = grep.output().expect("grep");
    assert_eq!(String::from_utf8_lossy(&found.stdout), "");
}

#[test]
fn hostile_user_gains_nothing() {
    let mut site = Site::start(3);
    let victim = Victim::start(&site);
    make_own(&site, OTHER, "evil");
    check_messages(&site, &victim);
    for (place, script) in attempts(&site, &victim) {
        let mut attempt = match place {
            "head" => site.cluster.command_as(OTHER, OTHER, "sh"),
            node => site.command_in_node_as(node, OTHER, "sh"),
        };
        let ended = attempt.args(["-c", &script]).output().expect("sh");
        let told = String::from_utf8_lossy(&ended.stdout);
        assert!(!told.contains(SECRET.trim()), "{script}: {told}");
        assert!(!ended.status.success(), "{script}: {ended:?}");
    }
    check_jobs(&site, &victim);
    let [own, stray] = submit_results(&site, &victim);
    let relay = site.shared().join("gateway-relay");
    let sockets = || fs::read_dir(&relay).into_iter().flatten().flatten();
    let mut socket = None;
    wait_until("a run collects results", || {
        socket = sockets().next().map(|entry| entry.path());
        socket.is_some()
    });
    let third = OTHER + 1;
    let told = client(&site, third, &socket.expect("a socket"), &["connect"]);
    assert_eq!(told, "refused\n");
    let mut flooding = flood(&site);
    victim.check_untouched(&site);
    let mut list = site.cluster.command_as(USER, USER, bin());
    must(list.arg("jobs").arg("--gateway").arg(site.socket()));

    // The victim's jobs end, and so do those of the hostile user.
    wait_slowly_until("stray results are refused", || {
        let mut list = site.cluster.command(bin());
        list.args(["results", "--json", &stray, "--gateway"]);
        let listed = list.arg(site.socket()).output().expect("a list");
        String::from_utf8_lossy(&listed.stdout).contains("ermission denied")
    });
    assert!(!victim.home.join("evil").exists());
    set_mode(&victim.home, 0o777);
    set_mode(&site.shared().join("later/closed"), 0o755);
    site.kill_gateway();
    site.start_gateway();
    fs::write(site.shared().join("go"), "").expect("a file");
    for job in [&victim.running, &victim.held, &own, &stray] {
        site.wait_until_closed(job);
    }
    for (job, task) in [(&victim.running, "1"), (&victim.held, "2")] {
        let secret = victim.home.join(job).join(task).join("secret");
        assert_eq!(fs::read_to_string(secret).expect("a result"), SECRET);
    }
    check_results(&site, &own);
    flooding.kill().expect("killed");
    flooding.wait().expect("ended");
    site.check_nothing_is_left();
}
