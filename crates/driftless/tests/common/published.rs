//! An agent that announces through a broker, and a mirror that hears it from there alone.

use super::agent::Agent;
use super::mirror::Mirror;
use driftless_testkit::Rabbit;
use driftless_testkit::scratch::scratch_folder;
use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;
use tempfile::TempDir;

/// A source, and what an agent and a mirror need of a broker. Each stage has an exchange of its own.
pub struct Stage {
    /// All of it.
    pub folder: TempDir,
    /// The source.
    pub source: PathBuf,
    url: String,
    name: &'static str,
}

impl Stage {
    /// One of an exchange `xs_NAME`.
    pub fn new(rabbit: &Rabbit, name: &'static str) -> Stage {
        let folder = scratch_folder();
        fs::set_permissions(folder.path(), fs::Permissions::from_mode(0o755)).expect("changed");
        let source = folder.path().join("src");
        fs::create_dir(&source).expect("a directory");
        fs::write(folder.path().join("password"), Rabbit::PASSWORD).expect("a file");
        let closed = fs::Permissions::from_mode(0o600);
        fs::set_permissions(folder.path().join("password"), closed).expect("changed");
        Stage {
            source: fs::canonicalize(source).expect("a path"),
            folder,
            url: rabbit.url(),
            name,
        }
    }

    /// The exchange.
    pub fn exchange(&self) -> String {
        format!("xs_{}", self.name)
    }

    /// A table of a configuration or a job.
    pub fn table(&self, table: &str) -> String {
        let (url, name) = (&self.url, self.name);
        let credentials = self.folder.path().join("password");
        format!(
            "[{table}]\nbroker = \"{url}\"\ncredentials = {credentials:?}\nexchange = \"xs_{name}\"\n"
        )
    }

    /// An agent that announces, and knows of no mirror.
    pub fn agent(&self, detect: &str) -> Agent {
        let keys = format!("detect = {detect}\n{}", self.table("publish"));
        let nobody = self.folder.path().join("nobody");
        let agent = Agent::of(&self.source, &nobody, &keys);
        settle(&agent);
        agent
    }

    /// A mirror that hears what is announced, and nothing else; an agent has made the exchange.
    pub fn mirror(&self) -> Mirror {
        let table = self.table("announcements");
        let name = self.name;
        let keys =
            format!("detect = [\"announcements\"]\ndelete = true\n{table}queue = \"q_{name}\"\n");
        let mirror = Mirror::of(&self.source, &keys);
        mirror.barrier();
        mirror
    }

    /// A path in the source.
    pub fn path(&self, name: &str) -> PathBuf {
        self.source.join(name)
    }
}

/// Waits until the broker has confirmed all that the agent has heard.
pub fn settle(agent: &Agent) {
    agent.wait_for("all is announced", |status| {
        status["publisher"]["waiting"] == 0 && status["publisher"]["away"].is_null()
    });
}
