//! MetPX-Sarracenia in Python (`sr3`), as another side of announcements, with a home of its own.

use driftless_testkit::Rabbit;
use driftless_testkit::scratch::scratch_folder;
use std::fs::{self, File, Permissions};
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use tempfile::TempDir;

/// Whose exchange is `xs_feed`, and whose queues begin with `q_feed`.
pub const USER: &str = "feed";
const PASSWORD: &str = "hidden";

/// A user of `sr3` and of a broker.
pub struct Sr3 {
    home: TempDir,
    url: String,
}

/// A component that runs; it ends with the value.
pub struct Component {
    child: Child,
    log: PathBuf,
}

impl Sr3 {
    /// Makes the user at the broker, who may do everything.
    pub fn new(rabbit: &Rabbit) -> Sr3 {
        rabbit.control(&["add_user", USER, PASSWORD]);
        rabbit.control(&[
            "set_permissions",
            "-p",
            Rabbit::VHOST,
            USER,
            ".*",
            ".*",
            ".*",
        ]);
        let url = rabbit.url().replace(Rabbit::USER, USER);
        let sr3 = Sr3 {
            home: scratch_folder(),
            url,
        };
        let file = sr3.folder().join("credentials.conf");
        fs::create_dir_all(sr3.folder()).expect("a folder");
        let with_password = sr3.url.replace(USER, &format!("{USER}:{PASSWORD}"));
        fs::write(&file, format!("{with_password}\n")).expect("a file");
        fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("closed");
        sr3
    }

    /// Its broker, without a password.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// The file with the password alone, for `credentials` of a job.
    pub fn credentials(&self) -> PathBuf {
        let file = self.home.path().join("password");
        fs::write(&file, PASSWORD).expect("a file");
        fs::set_permissions(&file, Permissions::from_mode(0o600)).expect("closed");
        file
    }

    /// Writes a configuration.
    pub fn configure(&self, component: &str, name: &str, lines: &str) {
        let folder = self.folder().join(component);
        fs::create_dir_all(&folder).expect("a folder");
        let cache = self
            .home
            .path()
            .join(".cache/sr3")
            .join(component)
            .join(name);
        fs::create_dir_all(cache).expect("a folder");
        let file = folder.join(format!("{name}.conf"));
        fs::write(&file, lines).expect("a file");
    }

    /// Runs one of its programs to its end.
    pub fn run(&self, program: &str, arguments: &[&str]) {
        let output = self.command(program, arguments).output().expect("it runs");
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert!(
            output.status.success(),
            "{program} {arguments:?}: {}{}",
            text(&output.stdout),
            text(&output.stderr)
        );
    }

    /// Starts a component in the foreground.
    pub fn start(&self, configuration: &str) -> Component {
        let log = self.home.path().join(configuration.replace('/', "-"));
        let file = File::create(&log).expect("a file");
        let mut command = self.command("sr3", &["foreground", configuration]);
        command.stdout(file.try_clone().expect("a descriptor"));
        command.stderr(file).stdin(Stdio::null());
        // It has processes of its own, which end with it.
        let child = command.process_group(0).spawn().expect("it runs");
        Component { child, log }
    }

    fn folder(&self) -> PathBuf {
        self.home.path().join(".config/sr3")
    }

    fn command(&self, program: &str, arguments: &[&str]) -> Command {
        let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent();
        let path = target.expect("a folder").join("sr3/bin").join(program);
        assert!(path.exists(), "{path:?} is not there: make test-packages");
        let mut command = Command::new(path);
        command.args(arguments).env_clear();
        command.env("HOME", self.home.path());
        command.env("PATH", std::env::var_os("PATH").unwrap_or_default());
        command
    }
}

impl Component {
    /// What it has logged.
    pub fn log(&self) -> String {
        fs::read_to_string(&self.log).unwrap_or_default()
    }
}

impl Drop for Component {
    fn drop(&mut self) {
        let group = i32::try_from(self.child.id()).ok();
        if let Some(group) = group.and_then(rustix::process::Pid::from_raw) {
            let _it_may_have_ended =
                rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
        }
        let _its_end = self.child.wait();
    }
}
