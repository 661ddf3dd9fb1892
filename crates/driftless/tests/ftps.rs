//! Deposits through FTPS, with clients of others: curl, lftp and Python.
//!
//! Each test has a server, and a service of PAM that asks a script. The users are real ones.
#![allow(clippy::disallowed_methods)]

mod common;
#[path = "ftps/hostile.rs"]
mod hostile;

use common::programs::signal;
use common::wait_until;
use driftless_testkit::accounts::{DEPOSIT_USERS, prepare_deposit_users};
use driftless_testkit::scratch::scratch_folder;
use driftless_testkit::{Driftless, Running, write_program};
use rustix::process::Signal;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

const ALICE: &str = DEPOSIT_USERS[0].0;
const BOB: &str = DEPOSIT_USERS[1].0;
/// Beginning of each program of Python: connects with TLS, and logs in with the password.
const LOGIN: &str = r#"
import ftplib, ssl, sys, socket, threading
port, authority, user, password = int(sys.argv[1]), sys.argv[2], sys.argv[3], sys.argv[4]
context = ssl.create_default_context(cafile=authority)
def login():
    ftp = ftplib.FTP_TLS(context=context, timeout=60)
    ftp.connect("127.0.0.1", port)
    ftp.login(user, password)
    ftp.prot_p()
    return ftp
def refused(act, code):
    try:
        try:
            act()
        except OSError:
            # The server closed the data connection of a refused upload; its reply says why.
            ftp.voidresp()
    except ftplib.Error as error:
        assert str(error).startswith(code), error
    else:
        sys.exit("not refused")
"#;
/// Answers of the service of PAM: the password of a user is "secret-" and the name.
const PAM_SCRIPT: &str = r#"#!/bin/sh
case $PAM_TYPE in
auth) [ "$(tr -d '\000')" = "secret-$PAM_USER" ] && [ "$PAM_RHOST" = 127.0.0.1 ] ;;
account) ! grep -qx "$PAM_USER" "${0%/*}/locked" ;;
esac
"#;

/// Server of a test.
struct Site {
    folder: tempfile::TempDir,
    service: PathBuf,
    port: u16,
    server: Option<Running>,
}

impl Drop for Site {
    fn drop(&mut self) {
        let _it_is_of_this_test = fs::remove_file(&self.service);
    }
}

impl Site {
    /// Starts a server for passwords and for certificates of the authority of the test.
    fn start() -> Site {
        Site::start_program(Path::new(env!("CARGO_BIN_EXE_driftless")))
    }

    fn start_program(program: &Path) -> Site {
        let binary = program;
        prepare_deposit_users();
        let folder = scratch_folder();
        certificates(folder.path());
        fs::write(folder.path().join("locked"), "").expect("locked");
        write_program(&folder.path().join("pam"), PAM_SCRIPT);
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let port = listener.local_addr().expect("an address").port();
        drop(listener);
        let name = format!("driftless-test-{port}");
        let service = Path::new("/etc/pam.d").join(&name);
        let program = folder.path().join("pam");
        let (program, exec) = (program.display(), "required pam_exec.so quiet");
        let rules = format!("auth {exec} expose_authtok {program}\naccount {exec} {program}\n");
        fs::write(&service, rules).expect("a service of PAM");
        let mut site = Site {
            folder,
            service,
            port,
            server: None,
        };
        site.server = Some(site.spawn(binary, &name));
        wait_until("the server listens", || {
            TcpStream::connect(("127.0.0.1", port)).is_ok()
        });
        site
    }

    fn spawn(&self, binary: &Path, service: &str) -> Running {
        let file = |name: &str| self.folder.path().join(name);
        Driftless::new(binary)
            .arg("ftps")
            .args(["--listen", &format!("127.0.0.1:{}", self.port)])
            .arg("--certificate")
            .arg(file("server.pem"))
            .arg("--key")
            .arg(file("server.key"))
            .arg("--deposits")
            .arg(file("deposits"))
            .args(["--pam", service])
            .arg("--client-authority")
            .arg(file("ca.pem"))
            .arg("--client-users")
            .arg(file("users"))
            .spawn()
    }

    fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn home(&self, user: &str) -> PathBuf {
        self.file("deposits").join(user)
    }

    /// Runs curl for a path of the server, as a user with a password.
    fn curl(&self, login: (&str, &str), path: &str, more: &[&str]) -> Output {
        Command::new("curl")
            .args(["-sS", "--ssl-reqd", "--max-time", "120", "--cacert"])
            .arg(self.file("ca.pem"))
            .args(["--user", &format!("{}:{}", login.0, login.1)])
            .args(more)
            .arg(format!("ftp://127.0.0.1:{}/{path}", self.port))
            .output()
            .expect("curl starts")
    }

    /// Runs a program of Python behind [`LOGIN`] as a user, which must succeed. Returns its output.
    fn python(&self, user: &str, program: &str) -> String {
        let output = Command::new("/usr/bin/python3")
            .args(["-c", &format!("{LOGIN}\n{program}")])
            .arg(self.port.to_string())
            .arg(self.file("ca.pem"))
            .args([user, &password(user)])
            .output()
            .expect("Python starts");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(output.status.success(), "{}", text(&output.stderr));
        text(&output.stdout)
    }

    /// Ends the server by SIGTERM, and returns its log.
    fn end(mut self) -> String {
        let server = self.server.take().expect("it runs");
        signal(server.pid(), Signal::TERM);
        let outcome = server.wait();
        assert_eq!(outcome.code(), 143, "{}", outcome.describe());
        outcome.stderr_text()
    }
}

fn password(user: &str) -> String {
    format!("secret-{user}")
}

/// Makes an authority, a certificate of the server and one of Alice, and the file of users.
fn certificates(folder: &Path) {
    let made = Command::new("/bin/sh")
        .current_dir(folder)
        .args(["-ec", r#"
            new="openssl req -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -subj"
            $new /CN=ca -x509 -days 2 -keyout ca.key -out ca.pem
            for name in server alice; do
                $new /CN=$name -keyout $name.key -out $name.csr
                printf 'subjectAltName=IP:127.0.0.1\n' >$name.ext
                openssl x509 -req -in $name.csr -CA ca.pem -CAkey ca.key -CAcreateserial -days 2 -extfile $name.ext -out $name.pem
            done
            echo "$(openssl x509 -in alice.pem -noout -fingerprint -sha256 | cut -d= -f2) $0" >users
            chmod 600 *.key
        "#, ALICE])
        .output()
        .expect("sh starts");
    assert!(
        made.status.success(),
        "{}",
        String::from_utf8_lossy(&made.stderr)
    );
}

#[test]
fn clients_without_tls_are_refused() {
    let site = Site::start();
    let mut plain = TcpStream::connect(("127.0.0.1", site.port)).expect("connects");
    let mut replies = BufReader::new(plain.try_clone().expect("a handle")).lines();
    let mut next = || replies.next().expect("a reply").expect("text");
    assert!(next().starts_with("220 "));
    plain.write_all(b"USER driftless-alice\r\n").expect("sent");
    let reply = next();
    assert!(reply.starts_with("5"), "the password is not asked: {reply}");
    site.python(
        ALICE,
        r#"
ftp = login()
ftp.prot_c()
refused(lambda: ftp.sendcmd("PASV"), "5")
refused(lambda: ftp.sendcmd("EPSV"), "4")
ftp.prot_p()
assert ftp.nlst() == [], "with TLS"
"#,
    );
}

#[test]
fn pam_decides_who_logs_in() {
    let site = Site::start();
    let code = &|user: &str, password: &str| site.curl((user, password), "", &[]).status.code();
    // curl(1): 67 is a refused login.
    assert_eq!(code(ALICE, &password(ALICE)), Some(0));
    // Each answer takes two seconds.
    std::thread::scope(|scope| {
        for (user, word) in [
            (ALICE, "wrong"),
            ("root", "secret-root"),
            ("daemon", "secret-daemon"),
            ("driftless-carol", "secret-driftless-carol"),
            ("anonymous", "secret-anonymous"),
        ] {
            scope.spawn(move || assert_eq!(code(user, word), Some(67), "{user}"));
        }
    });
    fs::write(site.file("locked"), format!("{BOB}\n")).expect("locked");
    assert_eq!(code(BOB, &password(BOB)), Some(67));
    let log = site.end();
    assert!(log.contains("logged in by password"), "{log}");
    assert!(log.contains("root: login refused: the UID 0"), "{log}");
    assert!(!log.contains("secret-"), "{log}");
}

#[test]
fn failed_logins_block_further_ones() {
    let site = Site::start();
    std::thread::scope(|scope| {
        (0..5).for_each(|_| {
            scope.spawn(|| site.curl((ALICE, "wrong"), "", &[]));
        });
    });
    let blocked = site.curl((ALICE, &password(ALICE)), "", &[]);
    assert_eq!(blocked.status.code(), Some(67));
    let other = site.curl((BOB, &password(BOB)), "", &[]);
    assert!(other.status.success(), "another user is not blocked");
    assert!(site.end().contains("5 failed logins"));
}

#[test]
fn certificate_logs_in_its_user_alone() {
    let site = Site::start();
    let (certificate, key) = (site.file("alice.pem"), site.file("alice.key"));
    let words = [
        "--cert",
        certificate.to_str().unwrap(),
        "--key",
        key.to_str().unwrap(),
    ];
    let own = site.curl((ALICE, ""), "", &words);
    assert!(
        own.status.success(),
        "{}",
        String::from_utf8_lossy(&own.stderr)
    );
    let other = site.curl((BOB, &password(BOB)), "", &words);
    assert_eq!(other.status.code(), Some(67));
    let users = fs::read(site.file("users")).expect("the users");
    fs::write(site.file("users"), "").expect("removed");
    let removed = site.curl((ALICE, &password(ALICE)), "", &words);
    assert_eq!(removed.status.code(), Some(67));
    // A data connection of another process of the client's host has no such certificate.
    fs::write(site.file("users"), users).expect("as before");
    let program = r#"
context.load_cert_chain("PEM", "KEY")
stranger = ssl.create_default_context(cafile=authority)
ftp = ftplib.FTP_TLS(context=context, timeout=60)
ftp.connect("127.0.0.1", port)
ftp.auth()
assert ftp.sendcmd("USER " + user).startswith("232"), "logged in"
ftp.prot_p()
assert ftp.nlst() == []
ftp.context = stranger
refused(ftp.nlst, "550")
ftp.context = context
assert ftp.nlst() == []
"#;
    let program = program.replace("PEM", words[1]).replace("KEY", words[3]);
    site.python(ALICE, &program);
    assert!(site.end().contains("logged in by certificate"));
}

#[test]
fn no_path_leads_out_of_the_home() {
    let site = Site::start();
    let upload = site.file("secret");
    fs::write(&upload, "of bob").expect("a file");
    let words = ["-T", upload.to_str().unwrap()];
    let stored = site.curl((BOB, &password(BOB)), "secret", &words);
    assert!(stored.status.success());
    site.python(ALICE, "login()");
    let home = site.home(ALICE);
    symlink("/etc", home.join("out")).expect("a link");
    symlink(site.home(BOB).join("secret"), home.join("file")).expect("a link");
    symlink(site.home(BOB), home.join("bob")).expect("a link");
    site.python(
        ALICE,
        &r#"
ftp = login()
take = lambda path: (lambda: ftp.retrbinary("RETR " + path, print))
for path in ("out/passwd", "file", "bob/secret", "/../BOB/secret", "../BOB/secret"):
    refused(take(path), "5")
import io
for path in ("out/new", "bob/new", ".driftless-tmp-" + "0" * 32):
    refused(lambda: ftp.storbinary("STOR " + path, io.BytesIO(b"x")), "5")
for path in ("out", "bob", "../BOB"):
    refused(lambda: ftp.cwd(path), "5")
for path in ("bob/secret", "../BOB/secret"):
    refused(lambda: ftp.delete(path), "5")
assert sorted(ftp.nlst()) == ["bob", "file", "out"], ftp.nlst()
"#
        .replace("BOB", BOB),
    );
    let meta = fs::metadata(site.home(BOB)).expect("the home");
    assert_eq!(
        (meta.uid(), meta.mode() & 0o7777),
        (DEPOSIT_USERS[1].1, 0o700)
    );
}

#[test]
fn cut_upload_is_absent_until_it_is_resumed() {
    let site = Site::start();
    site.python(
        ALICE,
        r#"
import os
data = os.urandom(3_000_000)
ftp = login()
ftp.voidcmd("TYPE I")
cut = ftp.transfercmd("STOR data")
cut.sendall(data[:1_000_000])
# Without the closing message of TLS.
socket.socket(fileno=cut.detach()).close()
refused(ftp.voidresp, "4")
assert ftp.nlst() == [], ftp.nlst()
refused(lambda: ftp.retrbinary("RETR data", print), "5")
# A client asks for the size to resume.
arrived = ftp.size("data")
assert 0 < arrived <= 1_000_000, arrived
import io
store = lambda rest: ftp.storbinary("STOR data", io.BytesIO(data[rest:]), rest=rest)
refused(lambda: store(arrived - 1), "4")
store(arrived)
back = io.BytesIO()
ftp.retrbinary("RETR data", back.write)
assert back.getvalue() == data
# A finished file is replaced as a whole, and never continued.
refused(lambda: ftp.storbinary("APPE data", io.BytesIO(b"more")), "553")
ftp.storbinary("STOR data", io.BytesIO(b"new"))
assert ftp.size("data") == 3
"#,
    );
    let meta = fs::metadata(site.home(ALICE).join("data")).expect("the file");
    assert_eq!(meta.uid(), DEPOSIT_USERS[0].1);
    assert_eq!(meta.gid(), DEPOSIT_USERS[0].1);
    assert_eq!(meta.mode() & 0o7777, 0o600);
    assert_eq!(common::names_below(&site.home(ALICE)), ["data"]);
    let log = site.end();
    assert!(log.contains("upload broke off after"), "{log}");
    assert!(log.contains("deposited 3000000 bytes"), "{log}");
}

#[test]
fn aborted_transfer_ends_without_a_file() {
    let site = Site::start();
    site.python(
        ALICE,
        r#"
import io, os, time
ftp = login()
ftp.voidcmd("TYPE I")
def begin(name):
    running = ftp.transfercmd("STOR " + name)
    running.sendall(b"x" * 1_000_000)
    return running
def end(running):
    # The orderly end of TLS, which alone would complete the upload.
    running.settimeout(10)
    try:
        running.unwrap()
    except OSError:
        pass
    running.close()
def replies():
    found = sorted(ftp.getline()[:3] for _ in range(2))
    assert found == ["226", "426"], found
open_upload = begin("waits")
time.sleep(0.5)
ftp.sock.sendall(b"ABOR\r\n")
replies()
end(open_upload)
for name in ("closes", "again"):
    closed = begin(name)
    ftp.sock.sendall(b"ABOR\r\n")
    end(closed)
    replies()
assert ftp.nlst() == [], ftp.nlst()
big = os.urandom(30_000_000)
ftp.storbinary("STOR big", io.BytesIO(big))
down = ftp.transfercmd("RETR big")
down.recv(1000)
ftp.sock.sendall(b"ABOR\r\n")
replies()
down.close()
assert ftp.nlst() == ["big"], "the session goes on"
"#,
    );
    let log = site.end();
    assert!(log.contains("the client sent ABOR"), "{log}");
}

#[test]
fn commands_of_clients_work_in_the_home() {
    let site = Site::start();
    let tree = site.file("tree");
    fs::create_dir_all(tree.join("a/b")).expect("a tree");
    fs::write(tree.join("a/b/one"), "1").expect("a file");
    fs::write(tree.join("two words"), "22").expect("a file");
    let lines = format!(
        "set ssl:ca-file {}; set ftp:ssl-force true; set ftp:ssl-protect-data true; set ssl:check-hostname no; set net:max-retries 1; \
         open -p {} -u {ALICE},{} 127.0.0.1; mirror -R --no-perms {} tree; bye",
        site.file("ca.pem").display(),
        site.port,
        password(ALICE),
        tree.display()
    );
    let lftp = Command::new("lftp").args(["-c", &lines]).output();
    let lftp = lftp.expect("lftp starts");
    let said = String::from_utf8_lossy(&lftp.stderr);
    assert!(lftp.status.success(), "{said}");
    let home = site.home(ALICE);
    let names = [
        "tree",
        "tree/a",
        "tree/a/b",
        "tree/a/b/one",
        "tree/two words",
    ];
    assert_eq!(common::names_below(&home), names);
    assert_eq!(fs::read(home.join("tree/two words")).expect("it"), b"22");
    site.python(
        ALICE,
        r#"
ftp = login()
ftp.cwd("tree")
assert "size=2;" in ftp.sendcmd("MLST two words"), "a relative path"
# No transfer takes the position of one that failed.
refused(lambda: ftp.retrbinary("RETR absent", print, rest=1), "5")
back = []
ftp.retrbinary("RETR two words", back.append)
assert b"".join(back) == b"22", back
facts = dict(ftp.mlsd())
assert facts["a"]["type"] == "dir" and facts["two words"]["size"] == "2", facts
assert ftp.sendcmd("MDTM two words").startswith("213 20")
ftp.rename("two words", "a/two")
refused(lambda: ftp.rmd("a"), "550")
ftp.delete("a/two")
ftp.delete("a/b/one")
ftp.rmd("a/b")
ftp.rmd("a")
ftp.mkd("c")
refused(lambda: ftp.mkd("c"), "550")
lines = []
ftp.retrlines("LIST", lines.append)
assert len(lines) == 1 and lines[0].startswith("drwx------"), lines
"#,
    );
    assert_eq!(common::names_below(&home), ["tree", "tree/c"]);
}

#[test]
fn drafts_of_put_are_neither_listed_nor_changed() {
    let site = Site::start();
    site.python(ALICE, "login()");
    let draft = site.home(ALICE).join(".put-refs");
    fs::create_dir(&draft).expect("a draft");
    fs::write(draft.join(".lock"), "").expect("a lock");
    site.python(
        ALICE,
        r#"
import io
ftp = login()
assert ftp.nlst() == [], ftp.nlst()
refused(lambda: ftp.delete(".put-refs/.lock"), "5")
refused(lambda: ftp.mkd(".put-x"), "5")
refused(lambda: ftp.storbinary("STOR .put-x", io.BytesIO(b"x")), "5")
ftp.mkd("a")
ftp.mkd("a/.put-x")
"#,
    );
    let names = [".put-refs", ".put-refs/.lock", "a", "a/.put-x"];
    assert_eq!(common::names_below(&site.home(ALICE)), names);
}

#[test]
fn replaced_program_serves_further_logins() {
    let folder = scratch_folder();
    driftless_testkit::attrs::set_mode(folder.path(), 0o755).expect("open");
    let [program, new] = ["driftless", "new"].map(|name| folder.path().join(name));
    fs::copy(env!("CARGO_BIN_EXE_driftless"), &program).expect("a copy");
    let site = Site::start_program(&program);
    site.python(ALICE, "login()");
    write_program(&new, "#!/bin/sh\nexit 9\n");
    fs::rename(&new, &program).expect("replaced");
    site.python(ALICE, "assert login().nlst() == []");
}

#[test]
fn signal_ends_server_and_sessions() {
    let site = Site::start();
    let ready = site.file("ready");
    let program = r#"
ftp = login()
ftp.voidcmd("TYPE I")
running = ftp.transfercmd("STOR data")
running.sendall(b"x" * 1_000_000)
open("READY", "w").close()
try:
    ftp.voidresp()
    ftp.voidcmd("NOOP")
except (EOFError, OSError, ftplib.Error):
    pass
else:
    sys.exit("the session goes on")
"#
    .replace("READY", ready.to_str().expect("text"));
    let home = site.home(ALICE);
    let server = site.server.as_ref().expect("it runs").pid();
    std::thread::scope(|scope| {
        let client = scope.spawn(|| site.python(ALICE, &program));
        wait_until("the upload runs", || ready.exists());
        signal(server, Signal::TERM);
        client.join().expect("the client ends");
    });
    let names = common::names_below(&home);
    assert!(
        names.iter().all(|name| name.starts_with(".driftless-tmp-")),
        "{names:?}"
    );
    site.end();
}
