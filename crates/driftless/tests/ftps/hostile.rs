//! Clients, users and hosts that do harm: floods before a login, data connections without TLS, ports
//! that stay unused, full disks, agents that are killed.

use super::{ALICE, BOB, Site, password};
use crate::common::programs::signal;
use crate::common::wait_until;
use driftless_testkit::accounts::DEPOSIT_USERS;
use rustix::process::Signal;
use std::fs;
use std::io::{ErrorKind, Read, Write};
use std::net::TcpStream;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Command;

/// Bytes of a flood: more than a session may use.
const FLOOD_BYTES: usize = 200 << 20;

/// Sends a line without an end, until the server cuts it off.
fn flood(site: &Site) {
    let mut stream = TcpStream::connect(("127.0.0.1", site.port)).expect("connects");
    let block = vec![b'A'; 1 << 20];
    let mut sent = 0;
    while sent < FLOOD_BYTES {
        match stream.write(&block) {
            Ok(count) => sent += count,
            Err(error) => {
                let kinds = [ErrorKind::ConnectionReset, ErrorKind::BrokenPipe];
                assert!(kinds.contains(&error.kind()), "{error}");
                return;
            }
        }
    }
    panic!("a session takes {sent} bytes");
}

#[test]
fn flood_before_login_ends_one_session() {
    let site = Site::start();
    flood(&site);
    // Bytes that are no TLS, and a handshake that stops.
    for bytes in [&b"GET / HTTP/1.1\r\n\r\n"[..], &[22, 3, 1, 2, 0, 1]] {
        let mut stream = TcpStream::connect(("127.0.0.1", site.port)).expect("connects");
        let mut buffer = [0; 256];
        let _greeting = stream.read(&mut buffer).expect("a greeting");
        stream.write_all(b"AUTH TLS\r\n").expect("sent");
        let count = stream.read(&mut buffer).expect("a reply");
        assert!(buffer[..count].starts_with(b"234 "));
        stream.write_all(bytes).expect("sent");
    }
    // One session may try six logins; each of these has a name that no user can have.
    site.python(
        ALICE,
        r#"
ftp = ftplib.FTP_TLS(context=context, timeout=60)
ftp.connect("127.0.0.1", port)
ftp.auth()
tried = 0
try:
    while True:
        ftp.sendcmd("USER a/b")
        ftp.sock.sendall(b"PASS x\r\n" * 1000)
        while not ftp.getline().startswith("530"):
            pass
        tried += 1
except (EOFError, OSError, ftplib.Error):
    pass
assert tried <= 6, tried
"#,
    );
    let listed = site.curl((ALICE, &password(ALICE)), "", &[]);
    assert!(listed.status.success(), "other clients are served");
    let log = site.end();
    let lines = log.matches("login refused").count();
    assert!(lines < 300, "{lines} lines of refused logins");
}

#[test]
fn data_without_tls_is_refused() {
    let site = Site::start();
    site.python(
        ALICE,
        r#"
def passive():
    return ftplib.parse229(ftp.sendcmd("EPSV"), ftp.sock.getpeername())[1]
# The level is lowered when the port is known, or between the port and the command.
for prot in ("PROT C", "PROT C\r\nPROT P"):
    ftp = login()
    ftp.prot_p()
    number = passive()
    for line in prot.split("\r\n"):
        ftp.sendcmd(line)
    plain = socket.create_connection(("127.0.0.1", number))
    plain.sendall(b"in the clear")
    try:
        ftp.sendcmd("STOR plain")
        ftp.voidresp()
    except (EOFError, ftplib.Error):
        pass
    else:
        sys.exit("bytes in the clear were taken")
    plain.close()
ftp = login()
ftp.prot_p()
assert ftp.nlst() == [], ftp.nlst()
# Ports without a connection are few.
ports = [passive() for _ in range(4)]
assert len(set(ports)) == 4
refused(passive, "425")
"#,
    );
}

#[test]
fn wrong_directory_ends_the_session() {
    let site = Site::start();
    site.python(
        ALICE,
        r#"
import io
ftp = login()
ftp.mkd("a")
ftp.sendcmd("CWD a")
ftp.sendcmd("CDUP")
ftp.storbinary("STOR top", io.BytesIO(b"1"))
ftp.sendcmd("CWD a")
ftp.sendcmd("CWD ..")
ftp.storbinary("STOR top2", io.BytesIO(b"1"))
try:
    ftp.sendcmd("CDUP")
    ftp.storbinary("STOR lost", io.BytesIO(b"1"))
except (EOFError, OSError, ftplib.Error):
    pass
else:
    sys.exit("the file is in another directory than the client believes")
"#,
    );
    let names = crate::common::names_below(&site.home(ALICE));
    assert_eq!(names, ["a", "top", "top2"]);
}

/// File system of one MiB at the home of a user.
struct SmallHome<'a>(&'a Path);

impl<'a> SmallHome<'a> {
    fn mount(home: &'a Path, uid: u32) -> Self {
        let options = format!("size=1m,mode=700,uid={uid},gid={uid}");
        let mut mount = Command::new("mount");
        mount.args(["-t", "tmpfs", "-o", &options, "small"]);
        assert!(mount.arg(home).status().expect("mount").success());
        SmallHome(home)
    }
}

impl Drop for SmallHome<'_> {
    fn drop(&mut self) {
        let mut umount = Command::new("umount");
        let _it_goes_with_its_folder = umount.arg("--lazy").arg(self.0).status();
    }
}

#[test]
fn full_disk_leaves_no_part() {
    let site = Site::start();
    site.python(ALICE, "login()");
    let home = site.home(ALICE);
    let _small = SmallHome::mount(&home, DEPOSIT_USERS[0].1);
    site.python(
        ALICE,
        r#"
import io
ftp = login()
ftp.storbinary("STOR data", io.BytesIO(b"old"))
refused(lambda: ftp.storbinary("STOR data", io.BytesIO(b"x" * 3_000_000)), "452")
assert ftp.size("data") == 3
ftp.storbinary("STOR more", io.BytesIO(b"x" * 500_000))
"#,
    );
    assert_eq!(crate::common::names_below(&home), ["data", "more"]);
}

/// Returns the children of a process.
fn children(pid: u32) -> Vec<u32> {
    let tasks = format!("/proc/{pid}/task");
    let tasks = fs::read_dir(tasks).into_iter().flatten().flatten();
    let lists = tasks.filter_map(|task| fs::read_to_string(task.path().join("children")).ok());
    let lists: Vec<String> = lists.collect();
    let words = lists.iter().flat_map(|list| list.split_whitespace());
    words.filter_map(|word| word.parse().ok()).collect()
}

#[test]
fn killed_agent_ends_its_session_alone() {
    let site = Site::start();
    let (ready, killed) = (site.file("ready"), site.file("killed"));
    let program = r#"
import os, time, io
other, ftp = login(), login()
open("READY", "w").close()
while not os.path.exists("KILLED"):
    time.sleep(0.05)
# Both have lost their agents.
for session in (other, ftp):
    try:
        session.storbinary("STOR data", io.BytesIO(b"x"))
        session.voidcmd("NOOP")
    except (EOFError, OSError, ftplib.Error):
        pass
    else:
        sys.exit("stored without an agent")
ftp = login()
ftp.storbinary("STOR data", io.BytesIO(b"x"))
"#;
    let text = |path: &Path| path.to_str().expect("text").to_owned();
    let program = program.replace("READY", &text(&ready));
    let program = program.replace("KILLED", &text(&killed));
    let server = site.server.as_ref().expect("it runs").pid();
    std::thread::scope(|scope| {
        let client = scope.spawn(|| site.python(ALICE, &program));
        wait_until("two sessions run", || ready.exists());
        let agents: Vec<u32> = children(server).into_iter().flat_map(children).collect();
        assert!(agents.len() >= 2, "{agents:?}");
        for agent in agents {
            signal(agent, Signal::KILL);
        }
        fs::write(&killed, "").expect("a file");
        client.join().expect("the client ends");
    });
    let log = site.end();
    assert!(log.contains("the agent of the user is gone"), "{log}");
}

#[test]
fn unsafe_home_is_refused() {
    let site = Site::start();
    let login = || site.curl((BOB, &password(BOB)), "", &[]).status.code();
    assert_eq!(login(), Some(0));
    let home = site.home(BOB);
    fs::set_permissions(&home, fs::Permissions::from_mode(0o755)).expect("a mode");
    assert_eq!(login(), Some(67));
    fs::remove_dir(&home).expect("removed");
    assert_eq!(login(), Some(0), "a missing home is made again");
    let log = site.end();
    assert!(
        log.contains("0755") && log.contains("user driftless-bob"),
        "{log}"
    );
}
