//! What the library never does to its host, and what is left of what it has to say when nobody
//! listens.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{Agent, Announced, EVENT_MAX, compiled};
use std::collections::BTreeSet;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixDatagram;
use std::path::PathBuf;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Instant, SystemTime};

/// Runs a part of `programs/host.c`, which has to succeed and print nothing but numbers.
fn host(agent: &Agent, part: &str) -> Output {
    let output = agent.command(compiled("host", &[])).arg(part).output();
    let output = output.expect("it starts");
    assert!(output.status.success(), "{part}: {output:?}");
    assert!(output.stderr.is_empty(), "{part}: {output:?}");
    output
}

fn words(announced: &Announced) -> BTreeSet<&str> {
    announced.all.iter().map(String::as_str).collect()
}

#[test]
fn errno_is_what_it_would_be() {
    host(&Agent::new(), "errno");
    host(&Agent::without(), "errno");
    let without_spool = Agent::without();
    fs::remove_dir(without_spool.at("spool")).expect("remove it");
    host(&without_spool, "errno");
    assert!(without_spool.gaps() > 0);
}

#[test]
fn threads_that_write_at_once_are_all_heard() {
    let mut agent = Agent::new();
    host(&agent, "threads");
    let announced = agent.announced();
    assert_eq!((announced.all.len(), announced.gaps), (48 * 100 * 3, 0));
    for number in 0..48 {
        let own = [
            format!("w n{number}"),
            format!("r n{number} o{number}"),
            format!("d o{number}"),
        ];
        for text in own {
            let count = announced.all.iter().filter(|one| **one == text).count();
            assert_eq!(count, 100, "{text}");
        }
    }
}

#[test]
fn children_of_threads_that_write_are_all_heard() {
    let mut agent = Agent::new();
    host(&agent, "forking_threads");
    let announced = agent.announced();
    let of = |text: &str| announced.all.iter().filter(|one| *one == text).count();
    for number in 0..8 {
        assert_eq!(of(&format!("w c{number}")), 40, "{number}");
        // A child may have what another thread was about to close, and announces that as well.
        assert!(of(&format!("w p{number}")) >= 40, "{number}");
    }
    // One that was made while another thread was between its close and its word does not know whether
    // that was said: rather a gap too many.
    assert!(announced.gaps <= 8, "{}", announced.gaps);
}

#[test]
fn a_program_that_closes_all_descriptors_closes_none_of_the_library() {
    let mut agent = Agent::new();
    host(&agent, "closes_all");
    assert_eq!(agent.announced().all, ["w a", "w b"]);
}

#[test]
fn a_program_can_have_every_descriptor() {
    let mut agent = Agent::new();
    host(&agent, "takes_all");
    assert_eq!(agent.announced().all, ["w a", "w b"]);
}

#[test]
fn handlers_of_signals_may_write_files() {
    let mut agent = Agent::new();
    let output = host(&agent, "signals");
    let text = String::from_utf8(output.stdout).expect("text");
    let counts: Vec<usize> = text.split_whitespace().flat_map(str::parse).collect();
    let announced = agent.announced();
    assert_eq!(announced.gaps, 0);
    let of = |text: &str| announced.all.iter().filter(|one| *one == text).count();
    assert_eq!([of("w main"), of("w handled")], counts[..]);
    assert_eq!(of("d handled2"), counts[1]);
}

#[test]
fn without_a_descriptor_to_have_a_gap_is_counted() {
    let mut agent = Agent::new();
    host(&agent, "at_the_limit");
    let announced = agent.announced();
    assert_eq!(
        (words(&announced), announced.gaps),
        (["c spooled"].into(), 1)
    );
}

#[test]
fn a_program_that_needs_all_its_descriptors_has_them() {
    let mut agent = Agent::new();
    host(&agent, "takes_the_last");
    let announced = agent.announced();
    let heard = |way: usize| ["c", "m", "d"].map(|kind| format!("{kind} heard{way}"));
    let expected: BTreeSet<String> = (0..5).flat_map(heard).chain(["w made".into()]).collect();
    let all: BTreeSet<String> = announced.all.into_iter().collect();
    assert_eq!((all, announced.gaps), (expected, 0));
}

#[test]
fn processes_that_come_and_go_in_hundreds_are_all_heard() {
    let mut agent = Agent::new();
    host(&agent, "storm");
    let announced = agent.announced();
    let expected: BTreeSet<String> = (0..60)
        .flat_map(|number| [format!("w n{number}"), format!("w n{number}.sh")])
        .collect();
    let all: BTreeSet<String> = announced.all.into_iter().collect();
    assert_eq!((all, announced.gaps), (expected, 0));
}

#[test]
fn what_nobody_hears_is_spooled_with_its_time() {
    let agent = Agent::without();
    let now = || SystemTime::now().duration_since(SystemTime::UNIX_EPOCH);
    let before = now().expect("a time").as_nanos() as u64;
    agent.run("bash", "mkdir a; echo x >n; mv n m");
    let after = now().expect("a time").as_nanos() as u64;
    let spooled = agent.spooled();
    assert!(
        spooled
            .iter()
            .all(|(time, _)| (before..=after).contains(time))
    );
    let texts: Vec<&str> = spooled.iter().map(|(_, text)| text.as_str()).collect();
    assert_eq!(texts, ["c a", "w n", "r n m"]);
    assert_eq!(agent.gaps(), 0);
}

/// A shell that does as it is told, line by line.
struct Shell(Child);

impl Shell {
    fn new(agent: &Agent) -> Shell {
        let mut command = agent.command("dash");
        command.stdin(Stdio::piped()).stdout(Stdio::null());
        Shell(command.spawn().expect("a shell"))
    }

    /// Says a line, and waits until it is done.
    fn say(&mut self, agent: &Agent, line: &str) {
        let done = agent.at("done");
        let stdin = self.0.stdin.as_mut().expect("its input");
        writeln!(stdin, "{line}; /bin/mkdir {}", done.display()).expect("say it");
        let begin = Instant::now();
        while fs::remove_dir(&done).is_err() {
            assert!(begin.elapsed() < EVENT_MAX, "{line}");
            std::thread::yield_now();
        }
    }

    fn end(mut self) {
        drop(self.0.stdin.take());
        assert!(self.0.wait().expect("its end").success());
    }
}

#[test]
fn an_agent_that_dies_and_comes_again_misses_nothing() {
    let mut agent = Agent::new();
    let mut shell = Shell::new(&agent);
    shell.say(&agent, "echo 1 >a");
    agent.fall_silent();
    shell.say(&agent, "echo 2 >b");
    fs::remove_file(agent.at("socket")).expect("the socket's name");
    shell.say(&agent, "echo 3 >c");
    agent.listen();
    shell.say(&agent, "echo 4 >o");
    shell.end();
    let spooled: Vec<String> = agent.spooled().into_iter().map(|(_, text)| text).collect();
    assert_eq!(spooled, ["w b", "w c"]);
    assert_eq!(agent.announced().all[..2], ["w a", "w o"]);
}

#[test]
fn an_agent_that_hears_too_slowly_finds_the_rest_in_the_spool() {
    let agent = Agent::without();
    let socket = UnixDatagram::bind(agent.at("socket")).expect("a socket");
    agent.run(
        "dash",
        "i=0; while [ $i -lt 2000 ]; do : >n; i=$((i+1)); done",
    );
    socket.set_nonblocking(true).expect("no waiting");
    let mut message = [0; 9000];
    let heard = std::iter::from_fn(|| socket.recv(&mut message).ok()).count();
    let spooled = agent.spooled().len();
    assert!(heard > 0 && spooled > 0, "{heard} {spooled}");
    assert_eq!((heard + spooled, agent.gaps()), (2000, 0));
}

#[test]
fn a_spool_that_is_full_or_gone_makes_gaps() {
    let agent = Agent::without();
    let spool = fs::File::create(agent.own_spool());
    spool
        .expect("the spool")
        .set_len(64 << 20)
        .expect("fill it");
    agent.run("dash", "echo x >n; echo x >m");
    assert_eq!(agent.gaps(), 2);
    fs::remove_file(agent.own_spool()).expect("remove it");
    fs::create_dir(agent.own_spool()).expect("something else");
    agent.run("dash", "echo x >n");
    assert_eq!(agent.gaps(), 3);
    fs::remove_dir_all(agent.at("spool")).expect("remove it");
    agent.run("dash", "echo x >n");
    assert_eq!(agent.gaps(), 4);
    fs::write(agent.at("spool"), "").expect("something else");
    agent.run("dash", "echo x >n");
    assert_eq!(agent.gaps(), 5);
}

/// Whoever writes beyond the limit of its process is ended by SIGXFSZ (setrlimit(2)).
#[test]
fn a_program_with_a_limit_for_files_is_not_ended_by_the_spool() {
    let agent = Agent::without();
    let spool = fs::File::create(agent.own_spool()).expect("the spool");
    spool
        .set_len(200 << 10)
        .expect("more than the program may write");
    for (script, gaps) in [("ulimit -f 200; echo x >n", 1), ("ulimit -f 0; : >m", 2)] {
        let output = agent.run("dash", &format!("{script}; echo goes on"));
        assert_eq!(output.stdout, b"goes on\n", "{script}: {output:?}");
        assert_eq!(agent.gaps(), gaps, "{script}");
    }
}

#[test]
fn a_program_that_limits_its_files_while_it_runs_is_not_ended_by_the_spool() {
    let agent = Agent::without();
    let spool = fs::File::create(agent.own_spool()).expect("the spool");
    spool.set_len(200 << 10).expect("make it long");
    host(&agent, "limits_itself");
    // Without a limit, with one that leaves room, and again without one, there are records; two
    // more files were closed at the end.
    let added = fs::metadata(agent.own_spool()).expect("the spool").len() - (200 << 10);
    let record = 2 + 8 + 4 + agent.tree().as_os_str().len() as u64 + 3;
    assert_eq!((added, agent.gaps()), (3 * record, 6 + 2));
}

#[test]
fn programs_that_write_at_once_are_not_ended_by_what_the_others_spool() {
    let agent = Agent::without();
    let spool = fs::File::create(agent.own_spool()).expect("the spool");
    spool.set_len(200 << 10).expect("make it long");
    let script = "ulimit -f 544; for p in 1 2 3 4 5 6 7 8; do \
        (i=0; while [ $i -lt 100 ]; do : >n$p.$i; i=$((i+1)); done; echo goes on) & done; wait";
    let output = agent.run("dash", script);
    let told = String::from_utf8_lossy(&output.stdout);
    assert_eq!(
        told.lines().collect::<Vec<_>>(),
        ["goes on"; 8],
        "{output:?}"
    );
    // Half of 544 KiB is the limit, and 64 KiB are left for what comes at the same moment.
    let long = fs::metadata(agent.own_spool()).expect("the spool").len();
    assert!((207 << 10..=272 << 10).contains(&long), "{long}");
    assert!(agent.gaps() > 0);
}

/// A file system in memory with room for some records, in the place of the spool.
struct SmallDisk(PathBuf);

impl SmallDisk {
    fn over(folder: PathBuf) -> SmallDisk {
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", "size=16k,mode=1733", "spool"]);
        let output = mount.arg(&folder).output().expect("it starts");
        assert!(output.status.success(), "{output:?}");
        SmallDisk(folder)
    }
}

impl Drop for SmallDisk {
    fn drop(&mut self) {
        let _it_may_be_gone = Command::new("umount").arg(&self.0).status();
    }
}

/// How many whole records a spool has; something may follow them.
fn records(bytes: &[u8]) -> u64 {
    let (mut count, mut rest) = (0, bytes);
    while let Some((length, after)) = rest.split_first_chunk::<2>() {
        let length = usize::from(u16::from_ne_bytes(*length));
        let Some(next) = after.get(length..) else {
            break;
        };
        (count, rest) = (count + 1, next);
    }
    count
}

#[test]
fn on_a_full_disk_each_message_is_a_record_or_a_gap() {
    let agent = Agent::without();
    let disk = SmallDisk::over(agent.at("spool"));
    let script = "i=0; while [ $i -lt 1000 ]; do : >n$i || exit 1; i=$((i+1)); done; ls | wc -l";
    let output = agent.run("dash", script);
    assert_eq!(output.stdout, b"1004\n");
    let bytes = fs::read(agent.own_spool()).expect("the spool");
    assert_eq!(bytes.len(), 16 << 10, "it is full");
    let records = records(&bytes);
    assert!((101..500).contains(&records), "{records}");
    assert_eq!(records + agent.gaps(), 1000);
    drop(disk);
}

/// A filter of system calls that kills knows nothing of this library (seccomp(2)).
#[test]
fn programs_that_forbid_themselves_system_calls_end_as_they_would() {
    for (what, gaps) in [
        ("by_prctl", 0),
        ("by_number", 0),
        ("exits", 0),
        ("_exits", 0),
        // What they do then is not told.
        ("opens", 1),
        ("removes", 1),
    ] {
        let mut agent = Agent::new();
        confine(&agent, what);
        let announced = agent.announced();
        assert_eq!(
            (words(&announced), announced.gaps),
            (["d nameless", "l m", "l n"].into(), gaps),
            "{what}"
        );
        // Nobody hears what they leave.
        let agent = Agent::without();
        confine(&agent, what);
        assert_eq!(
            (agent.spooled().len(), agent.gaps()),
            (1, gaps + 2),
            "{what}"
        );
    }
    let agent = Agent::new();
    let mut command = agent.command(compiled("host", &[]));
    let output = command
        .arg("strictly_confined")
        .output()
        .expect("it starts");
    assert_eq!(output.status.code(), Some(7), "{output:?}");
}

/// Runs a program that forbids itself system calls, without the library and with it.
fn confine(agent: &Agent, what: &str) {
    let run = |command: &mut Command| {
        let command = command.args(["confined", what]);
        let output = command.env("ELSEWHERE", agent.at("elsewhere")).output();
        output.expect("it starts")
    };
    let plain = run(Command::new(compiled("host", &[])).current_dir(agent.tree()));
    assert_eq!(plain.status.code(), Some(7), "{what}: {plain:?}");
    fs::write(agent.tree().join("f"), "content").expect("it is there again");
    let output = run(&mut agent.command(compiled("host", &[])));
    assert_eq!(
        (output.status, output.stderr),
        (plain.status, plain.stderr),
        "{what}"
    );
}

#[test]
fn programs_that_gain_no_rights_and_children_that_forbid_themselves_some_are_heard() {
    let mut agent = Agent::new();
    host(&agent, "gains_none");
    let announced = agent.announced();
    assert_eq!(announced.all, ["w a", "w b", "w c", "w p", "w q"]);
    assert_eq!(announced.gaps, 0);
}

#[test]
fn counters_of_gaps_that_are_cut_off_or_gone_harm_nobody() {
    let agent = Agent::without();
    fs::remove_dir(agent.at("spool")).expect("remove it");
    let mut shell = Shell::new(&agent);
    shell.say(&agent, "echo x >n");
    assert_eq!(agent.gaps(), 1);
    let gaps = fs::OpenOptions::new().write(true).open(agent.at("gaps"));
    gaps.expect("the gaps").set_len(0).expect("cut them off");
    shell.say(&agent, "echo x >n");
    fs::remove_file(agent.at("gaps")).expect("remove them");
    shell.say(&agent, "echo x >n");
    shell.end();
    agent.run("dash", "echo x >n");
}

#[test]
fn a_variable_switches_it_off() {
    let mut agent = Agent::new();
    let mut command = agent.command("dash");
    command.args(["-c", "echo x >n; mkdir a"]);
    let output = command.env("DRIFTLESS_SHIM", "0").output().expect("starts");
    assert!(output.status.success());
    agent.run("dash", "echo x >m");
    assert_eq!(agent.announced().all, ["w m"]);
}

#[test]
fn maps_that_others_can_write_or_that_make_no_sense_are_not_believed() {
    type Spoils = fn(&mut Vec<u8>);
    let cases: [(&str, Spoils); 6] = [
        ("another beginning", |map| map[0] = b'X'),
        ("cut off", |map| map.truncate(1160)),
        ("empty", Vec::clear),
        ("a path that leads out of it", |map| map[1161] = 4),
        ("more trees than there are", |map| map[12] = 99),
        ("a socket without an end", |map| map[16..128].fill(b'a')),
    ];
    for (name, spoil) in cases {
        let mut agent = Agent::new();
        let mut map = fs::read(agent.at("map")).expect("the map");
        spoil(&mut map);
        fs::write(agent.at("map"), map).expect("spoil it");
        agent.run("dash", "echo x >n");
        assert_eq!(agent.announced().all, [""; 0], "{name}");
    }
    let mut agent = Agent::new();
    fs::set_permissions(agent.at("map"), fs::Permissions::from_mode(0o666)).expect("its mode");
    agent.run("dash", "echo x >n");
    assert_eq!(agent.announced().all, [""; 0]);
}

#[test]
fn a_map_that_is_replaced_or_comes_late_is_found() {
    let agent = Agent::new();
    let device = fs::metadata(agent.tree()).expect("the tree").dev();
    let old = fs::OpenOptions::new().write(true).open(agent.at("map"));
    let mut shell = Shell::new(&agent);
    // That of another device, so that nothing is announced.
    agent.write_map(device + 1, 1);
    Agent::mark_replaced(&old.expect("the map"));
    shell.say(&agent, "echo 1 >a");
    let old = fs::OpenOptions::new().write(true).open(agent.at("map"));
    agent.write_map(0, 1);
    Agent::mark_replaced(&old.expect("the map"));
    shell.say(&agent, "echo 2 >b");
    shell.end();
    fs::remove_file(agent.at("map")).expect("remove it");
    let mut shell = Shell::new(&agent);
    shell.say(&agent, "echo 3 >c");
    agent.write_map(device, 1);
    // It looks again after a second.
    let begin = Instant::now();
    while begin.elapsed().as_millis() < 2100 {
        shell.say(&agent, "echo 4 >o");
    }
    shell.end();
    let mut agent = agent;
    let announced = agent.announced();
    assert_eq!(words(&announced), ["w b", "w o"].into());
}

#[test]
fn results_are_the_same_with_and_without_it() {
    let script = "ls -l --time-style=+; cat f d/g nothing; echo $?; exec 3>n; echo a >&3; exec 3>&-;
        cat n; sort <n | tee m; (exit 3); echo $?; ulimit -n 40; for i in 1 2 3; do echo $i >>m; done;
        cksum m; python3 -c 'import os; print(sorted(map(int, os.listdir(\"/proc/self/fd\"))))';
        mv nothing x; kill -9 $$";
    let with = Agent::new();
    let without = Agent::without();
    let of = |agent: &Agent, is_preloaded: bool| {
        let mut command = agent.command("bash");
        if !is_preloaded {
            command.env_remove("LD_PRELOAD");
        }
        command.args(["-c", script]).output().expect("it starts")
    };
    assert_eq!(of(&with, true), of(&without, false));
    assert!(with.gaps() == 0);
}

/// The nanoseconds that a call takes more, and those of the call by itself (`programs/speed.c`).
fn nanoseconds(command: &mut Command, part: &str) -> Vec<f64> {
    let output = command.arg(part).output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).expect("text");
    text.split_whitespace().flat_map(str::parse).collect()
}

#[test]
#[ignore = "measures, and wants the machine for itself"]
fn it_costs_next_to_nothing() {
    let program = compiled("speed", &[]);
    for part in ["reading", "writing", "beside", "elsewhere", "changing"] {
        let mut agent = Agent::new();
        let heard = nanoseconds(&mut agent.command(&program), part);
        agent.fall_silent();
        let spooled = nanoseconds(&mut agent.command(&program), part);
        let mut bare = agent.command(&program);
        let bare = nanoseconds(bare.env_remove("LD_PRELOAD"), part);
        println!("{part}: {heard:?}, without an agent {spooled:?}, without it {bare:?}");
    }
}
