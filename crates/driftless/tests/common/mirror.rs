//! A mirror that runs: its job, its replica, its process.

use super::driftless;
use super::far::{Far, agent};
use driftless_testkit::scratch::scratch_folder;
use driftless_testkit::{Driftless, EVENT_MAX, Host, Options, Outcome, Running, assert_equal};
use rustix::process::Signal;
use serde_json::Value;
use std::fs;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};
use tempfile::TempDir;

/// The longest a mirror takes for anything that is waited for here.
pub const LIMIT: Duration = EVENT_MAX;

/// A mirror, with a replica in memory.
pub struct Mirror {
    folder: TempDir,
    /// Its source.
    pub source: PathBuf,
    /// Its replica.
    pub replica: PathBuf,
    running: Option<Running>,
    /// A folder with programs that it finds first.
    programs: Option<PathBuf>,
    /// What is put before its commands.
    words: Vec<String>,
}

impl Mirror {
    /// Starts to follow `source`; `keys` are further lines of the job.
    pub fn of(source: &Path, keys: &str) -> Mirror {
        let mut mirror = Mirror::not_started(source, keys);
        mirror.start();
        mirror
    }

    /// What it says that does not start.
    pub fn refused(source: &Path, keys: &str) -> Outcome {
        let mirror = Mirror::not_started(source, keys);
        let _said_as_well = mirror.command("check").run().expect(1);
        mirror.command("run").run().expect(1)
    }

    /// What `run` says that does not begin, of a job that can be meant.
    pub fn not_begun(source: &Path, keys: &str) -> Outcome {
        let mirror = Mirror::not_started(source, keys);
        mirror.command("run").run().expect(1)
    }

    /// One that a service manager has started, which has set these variables.
    pub fn serving(source: &Path, keys: &str, environment: &[(&str, &str)]) -> Mirror {
        let mut mirror = Mirror::not_started(source, keys);
        let set = |run: Driftless, (name, value): &(&str, &str)| run.env(name, value);
        let run = environment.iter().fold(mirror.command("run"), set);
        mirror.running = Some(run.limit(Duration::from_secs(600)).spawn());
        mirror
    }

    /// One of a replica that is named so, which may not answer yet.
    pub fn begun(source: &Path, replica: &str, keys: &str) -> Mirror {
        let mut mirror = Mirror::with(source, &|_| replica.to_owned(), keys);
        let run = mirror.command("run").limit(Duration::from_secs(600));
        mirror.running = Some(run.spawn());
        mirror
    }

    /// Asks it to end.
    pub fn terminate(&self) {
        self.signal(Signal::TERM);
    }

    /// Ends it cleanly.
    pub fn stop(&mut self) {
        self.terminate();
        let _its_end = self.running.take().expect("it runs").wait();
    }

    /// Starts to follow `source` on a host of a lab.
    pub fn on(host: &Host, source: &Path, keys: &str) -> Mirror {
        let mut mirror = Mirror::not_started(source, keys);
        mirror.words = host.words();
        mirror.start();
        mirror
    }

    /// Starts a member of the pool of `lead` on a host of a lab.
    pub fn member(host: &Host, lead: &Mirror, keys: &str) -> Mirror {
        Mirror::joining(host.words(), lead, keys)
    }

    /// Starts a member of the pool of `lead` on its own host.
    pub fn joined(lead: &Mirror, keys: &str) -> Mirror {
        Mirror::joining(Vec::new(), lead, keys)
    }

    fn joining(words: Vec<String>, lead: &Mirror, keys: &str) -> Mirror {
        let replica = lead.replica.to_str().expect("text").to_owned();
        let mut member = Mirror::with(&lead.source, &|_| replica.clone(), keys);
        member.words = words;
        let join = member.command("join").limit(Duration::from_secs(600));
        member.running = Some(join.spawn());
        member
    }

    /// The same with a replica that is reached through ssh.
    pub fn far(source: &Path, far: &Far, keys: &str) -> Mirror {
        let reach = format!(
            "[reach]\nssh = {:?}\nagent_path = {:?}\n",
            far.words(),
            agent()
        );
        let typed = |path: &Path| far.path(path).into_string().expect("text");
        let mut mirror = Mirror::with(source, &typed, &format!("{keys}{reach}"));
        mirror.start();
        mirror
    }

    /// One that has not been started.
    pub fn idle(source: &Path, keys: &str) -> Mirror {
        Mirror::not_started(source, keys)
    }

    fn not_started(source: &Path, keys: &str) -> Mirror {
        let typed = |path: &Path| path.to_str().expect("text").to_owned();
        Mirror::with(source, &typed, keys)
    }

    /// The same with a replica that is somewhere else than in memory.
    pub fn between(source: &Path, replica: &Path, keys: &str) -> Mirror {
        Mirror::with_programs(source, replica, keys, None)
    }

    /// The same with programs that it finds before those of the machine.
    pub fn with_programs(
        source: &Path,
        replica: &Path,
        keys: &str,
        programs: Option<&Path>,
    ) -> Mirror {
        let mut mirror = Mirror::not_started(source, keys);
        mirror.programs = programs.map(Path::to_owned);
        mirror.replica = replica.to_owned();
        mirror.write_job(replica.to_str().expect("text"), keys);
        mirror.start();
        mirror
    }

    /// The same with several replicas, of which the first is `replica`.
    pub fn several(source: &Path, replicas: &[&Path], keys: &str) -> Mirror {
        let mut mirror = Mirror::not_started(source, keys);
        mirror.replica = replicas[0].to_owned();
        let job = format!("name = \"test\"\nsource = {source:?}\nreplicas = {replicas:?}\n{keys}");
        fs::write(mirror.folder.path().join("job.toml"), job).expect("a file");
        mirror.start();
        mirror
    }

    fn with(source: &Path, typed: &dyn Fn(&Path) -> String, keys: &str) -> Mirror {
        let folder = scratch_folder();
        let replica = folder.path().join("replica");
        let named = typed(&replica);
        let mirror = Mirror {
            source: source.to_owned(),
            replica,
            folder,
            running: None,
            programs: None,
            words: Vec::new(),
        };
        mirror.write_job(&named, keys);
        mirror
    }

    /// Writes another job of the same trees.
    pub fn change(&self, keys: &str) {
        self.write_job(self.replica.to_str().expect("text"), keys);
    }

    fn write_job(&self, replica: &str, keys: &str) {
        let source = &self.source;
        let job = format!("name = \"test\"\nsource = {source:?}\nreplica = {replica:?}\n{keys}");
        fs::write(self.folder.path().join("job.toml"), job).expect("a file");
    }

    /// A command about its job.
    pub fn command(&self, command: &str) -> Driftless {
        self.command_of(command, &self.folder.path().join("job.toml"))
    }

    /// A command about another job of the same user.
    pub fn command_of(&self, command: &str, job: &Path) -> Driftless {
        let found = std::env::var_os("PATH").unwrap_or_default();
        let own = self.programs.iter().cloned();
        let path = std::env::join_paths(own.chain(std::env::split_paths(&found)));
        driftless()
            .through(&self.words)
            .env("PATH", path.expect("no colons"))
            .arg("mirror")
            .arg(command)
            .arg(job)
            .env("XDG_STATE_HOME", self.folder.path().join("state"))
            .env("DRIFTLESS_RUNTIME_DIR", self.runtime_folder())
    }

    /// A command that names no job, of the same user.
    pub fn without_job(&self, words: &[&str]) -> Driftless {
        driftless()
            .arg("mirror")
            .args(words)
            .env("XDG_STATE_HOME", self.folder.path().join("state"))
    }

    /// Where it listens for posts.
    pub fn runtime_folder(&self) -> PathBuf {
        self.folder.path().join("run")
    }

    /// A run of its own between its trees.
    pub fn sync(&self, options: &[&str]) -> Driftless {
        driftless()
            .arg("sync")
            .args(options)
            .args([&self.source, &self.replica])
            .env("XDG_STATE_HOME", self.folder.path().join("state"))
    }

    /// A report about its job.
    pub fn report(&self) -> Driftless {
        driftless()
            .arg("report")
            .arg(self.folder.path().join("job.toml"))
            .env("XDG_STATE_HOME", self.folder.path().join("state"))
    }

    /// Starts it, and waits until it answers.
    pub fn start(&mut self) {
        self.start_with(&[]);
    }

    /// The same with further arguments.
    pub fn start_with(&mut self, more: &[&str]) {
        let run = more
            .iter()
            .fold(self.command("run"), |run, one| run.arg(one));
        let running = run.limit(Duration::from_secs(600)).spawn();
        self.running = Some(running);
        self.wait_until_answers();
    }

    /// Waits until it answers itself: it may begin anew.
    pub fn wait_until_answers(&self) {
        let began = Instant::now();
        while !self.answers() {
            assert!(began.elapsed() < LIMIT, "it does not answer");
            std::thread::sleep(Duration::from_millis(20));
        }
    }

    /// Whether it is asked itself, and not its state alone.
    fn answers(&self) -> bool {
        let told = self.command("status").arg("--json").run();
        told.code() == 0 && told.stdout_text().contains("\"is_running\":true")
    }

    /// Where its state is kept.
    pub fn state_file(&self) -> PathBuf {
        self.folder.path().join("state/driftless/mirror-test.db")
    }

    /// What its state says to a question.
    pub fn rows(&self, sql: &str) -> String {
        let said = std::process::Command::new("sqlite3")
            .arg("-readonly")
            .arg(self.state_file())
            .arg(sql)
            .output();
        String::from_utf8(said.expect("sqlite3 runs").stdout).expect("text")
    }

    /// The number of its process.
    pub fn process(&self) -> u32 {
        self.running.as_ref().expect("it runs").pid()
    }

    fn signal(&self, signal: Signal) {
        self.running.as_ref().expect("it runs").signal(signal);
    }

    /// Asks it by a signal to log how it stands.
    pub fn ask_by_signal(&self) {
        self.signal(Signal::USR1);
    }

    /// Stops it from doing anything.
    pub fn freeze(&self) {
        self.signal(Signal::STOP);
    }

    /// Has it go on.
    pub fn thaw(&self) {
        self.signal(Signal::CONT);
    }

    /// Ends it at once.
    pub fn kill(&mut self) {
        self.signal(Signal::KILL);
        let _its_end = self.running.take().expect("it runs").wait();
    }

    /// Waits for its end, which somebody has asked it for.
    pub fn ended(&mut self) -> Outcome {
        self.running.take().expect("it runs").wait()
    }

    /// Waits until everything that changed is on the replica.
    pub fn barrier(&self) {
        let done = self.command("barrier").arg("--timeout=300s").run();
        let problems = self.command("problems").run().stdout_text();
        let (described, status) = (done.describe(), self.status());
        assert_eq!(done.code(), 0, "{described}\n{status}\n{problems}");
    }

    /// Its trees are equal once everything is on the replica. It lets go of its locks meanwhile.
    pub fn check_equal(&self, context: &str) {
        self.barrier();
        let _done = self.command("pause").run().expect(0);
        let (source, replica) = (&self.source, &self.replica);
        assert_equal(source, replica, &Options::default(), context);
        let _done = self.command("resume").run().expect(0);
    }

    /// How it is.
    pub fn status(&self) -> Value {
        self.statuses().swap_remove(0)
    }

    /// Changes its state behind its back, while it does not run.
    pub fn changed_state(&self, sql: &str) -> std::process::ExitStatus {
        let changed = std::process::Command::new("sqlite3")
            .arg(self.state_file())
            .arg(sql)
            .status();
        changed.expect("sqlite3 runs")
    }

    /// How each replica is.
    pub fn statuses(&self) -> Vec<Value> {
        let told = self.command("status").arg("--json").run().expect(0);
        let told = told.stdout_text();
        let lines = told.lines().map(serde_json::from_str);
        lines.collect::<Result<_, _>>().expect("JSON")
    }

    /// Waits until a number of its status is as it shall be.
    pub fn wait_for(&self, name: &str, is_right: impl Fn(u64) -> bool) {
        let began = Instant::now();
        while !self.status()[name].as_u64().is_some_and(&is_right) {
            let problems = || self.command("problems").run().stdout_text();
            assert!(
                began.elapsed() < LIMIT,
                "{name}: {}\n{}",
                self.status(),
                problems()
            );
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}
