//! The values of a job. They were checked when they were read: what contradicts itself is no
//! [`Job`].

use super::quiet::Quiet;
use driftless_model::{Keep, Policy};
use driftless_settings::Publish;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;
use xxhash_rust::xxh3::xxh3_64;

/// What keeps replicas equal to a source.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Job {
    /// Its name, which can be one of a file: 1 to 64 letters, digits and `-_.`, no dot at first.
    pub name: String,
    /// The tree that is read: a path or `[USER@]HOST:PATH`.
    pub source: String,
    /// The trees that become equal to it: one at least, no two the same.
    pub replicas: Vec<String>,
    /// How it is found out which paths may differ: one way at least, none twice.
    pub detect: Vec<Detect>,
    /// The recovery point objective: how far a replica may be behind.
    pub rpo: Duration,
    /// When nothing is copied.
    pub quiet: Quiet,
    /// Of one of several replicas: what tells it from the others.
    pub(crate) key: Option<String>,
    /// The command that is told of problems, with its arguments.
    pub on_problem: Option<Vec<String>>,
    /// The group whose members may ask the mirror for what changes nothing.
    pub operators: Option<String>,
    /// What is deleted is kept for a while.
    pub trash: Option<Trash>,
    /// The replica is closed to all changes while the mirror does nothing there, where its file
    /// system can do that.
    pub read_only: bool,
    /// What is kept, compared, taken and deleted.
    pub policy: Policy,
    /// Comparisons of all.
    pub walk: Walk,
    /// The rhythm of snapshots.
    pub cycle: Cycle,
    /// What is asked of detectors that tell of changes while they happen.
    pub live: Live,
    /// What is asked of fanotify(7).
    pub fanotify: Fanotify,
    /// What GPFS calls the source.
    pub gpfs: Gpfs,
    /// The site's own commands for snapshots: there for [`Detect::Command`] alone.
    pub command: Option<SnapshotCommands>,
    /// Where lists of paths come from: there for [`Detect::List`] alone.
    pub list: Option<ListSource>,
    /// Which changelog is read: there for [`Detect::Lustre`] alone.
    pub lustre: Option<Lustre>,
    /// Which announcements of a broker are heard beside those of this host: never there without
    /// [`Detect::Announcements`].
    pub announcements: Option<Announcements>,
    /// Where it is announced what has changed on the replicas.
    pub publish: Option<Publish>,
    /// How hard it is worked.
    pub limits: Limits,
    /// How other hosts are reached.
    pub reach: Reach,
    /// Where metrics can be asked for.
    pub metrics: Option<Metrics>,
}

impl Job {
    /// Whether this detector is one of the job's.
    pub fn detects_by(&self, detect: Detect) -> bool {
        self.detect.contains(&detect)
    }

    /// The kind of snapshots by which changes are found.
    pub fn snapshots(&self) -> Option<Detect> {
        self.detect.iter().copied().find(|one| one.is_snapshot())
    }

    /// A job for each replica alone. The key of one among several is the same wherever it stands
    /// among them.
    pub fn apart(&self) -> Vec<Job> {
        let is_alone = self.replicas.len() == 1;
        let one = |replica: &String| Job {
            replicas: vec![replica.clone()],
            key: (!is_alone).then(|| format!("{:016x}", xxh3_64(replica.as_bytes()))),
            ..self.clone()
        };
        self.replicas.iter().map(one).collect()
    }

    /// What is kept for its one replica goes by this name: the job's, with the key of one among
    /// several.
    pub fn own_name(&self) -> String {
        match &self.key {
            Some(key) => format!("{}.{key}", self.name),
            None => self.name.clone(),
        }
    }

    /// Whether a detector tells of changes while they happen.
    pub fn is_live(&self) -> bool {
        self.detect.iter().any(|one| one.is_live())
    }

    /// A number for what the job takes, keeps and leaves out, and by which version of the program:
    /// where it is another one, what was equal may differ.
    pub fn rules(&self) -> u64 {
        let version = env!("CARGO_PKG_VERSION");
        let mut policy = self.policy.clone();
        // It belongs to the process, and nothing is compared with it.
        policy.keep.umask = Keep::default().umask;
        xxh3_64(format!("{version} {policy:?}").as_bytes())
    }

    /// Whether the replica becomes equal to snapshots of the source, and not to the source itself.
    pub fn reads_snapshots(&self) -> bool {
        self.snapshots().is_some() && !self.is_live()
    }
}

/// A way to find out which paths may differ.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Detect {
    /// All of both trees is compared.
    Walk,
    /// The kernel tells of changes on a file system of this host.
    Fanotify,
    /// Snapshots of btrfs are compared.
    Btrfs,
    /// Snapshots of ZFS are compared.
    Zfs,
    /// Snapshots of GPFS (Storage Scale) are compared.
    Gpfs,
    /// Snapshots of CephFS are compared.
    CephFs,
    /// The site's own commands make and compare snapshots.
    Command,
    /// The changelog of Lustre is read.
    Lustre,
    /// Another program lists paths.
    List,
    /// Programs name their own files, on this host or through a broker.
    Announcements,
}

impl Detect {
    /// All detectors, by their names in a job.
    pub const ALL: [(&'static str, Detect); 10] = [
        ("walk", Detect::Walk),
        ("fanotify", Detect::Fanotify),
        ("btrfs", Detect::Btrfs),
        ("zfs", Detect::Zfs),
        ("gpfs", Detect::Gpfs),
        ("cephfs", Detect::CephFs),
        ("command", Detect::Command),
        ("lustre", Detect::Lustre),
        ("list", Detect::List),
        ("announcements", Detect::Announcements),
    ];

    /// Its name in a job.
    pub fn name(self) -> &'static str {
        let named = Detect::ALL.iter().find(|(_, detect)| *detect == self);
        named.expect("all have a name").0
    }

    /// Whether it compares snapshots, in cycles.
    pub fn is_snapshot(self) -> bool {
        match self {
            Detect::Btrfs | Detect::Zfs | Detect::Gpfs | Detect::CephFs | Detect::Command => true,
            Detect::Walk
            | Detect::Fanotify
            | Detect::Lustre
            | Detect::List
            | Detect::Announcements => false,
        }
    }

    /// Whether it tells of changes while they happen.
    pub fn is_live(self) -> bool {
        self != Detect::Walk && !self.is_snapshot()
    }
}

/// What is deleted is kept: for a time, up to a size, or both.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trash {
    /// What was deleted longer ago goes.
    pub age: Option<Duration>,
    /// Of more bytes than this, the oldest go.
    pub bytes: Option<u64>,
}

impl Trash {
    /// As the engine is asked.
    pub fn limits(self) -> driftless_engine::Limits {
        driftless_engine::Limits {
            age: self.age,
            bytes: self.bytes,
        }
    }
}

/// Comparisons of all.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Walk {
    /// From the beginning of one to that of the next; without it, there is one at the start, on
    /// demand and on doubt.
    pub every: Option<Duration>,
}

/// The rhythm of snapshots.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Cycle {
    /// From the beginning of one to that of the next; without it, the next begins when one ends.
    pub every: Option<Duration>,
    /// How many snapshots are kept: one at least.
    pub keep: u32,
}

/// What is asked of detectors that tell of changes while they happen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Live {
    /// How long a file that is open for writing is left alone after its last change.
    pub settle: Duration,
}

/// What is asked of fanotify(7).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Fanotify {
    /// The kernel's queue has no limit.
    pub unlimited: bool,
}

/// What GPFS calls the source.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Gpfs {
    /// The file system; else what is mounted there.
    pub device: Option<String>,
    /// The independent fileset that the source is the root of; else it is that of a file system.
    pub fileset: Option<String>,
}

/// The site's own commands for snapshots, each with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotCommands {
    /// Makes one.
    pub create: Vec<String>,
    /// Lists those that there are.
    pub list: Vec<String>,
    /// Deletes one.
    pub delete: Vec<String>,
    /// Tells what differs between two.
    pub diff: Vec<String>,
}

/// Where lists of paths come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ListSource {
    /// A named pipe, or a directory of lists.
    pub path: PathBuf,
    /// How they are written.
    pub format: ListFormat,
}

/// How a list of paths is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ListFormat {
    /// One path a line.
    Lines,
    /// Each path ends with NUL.
    Nul,
    /// One JSON object a line.
    Json,
}

/// Which changelog of Lustre is read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lustre {
    /// The metadata target, such as `scratch-MDT0000`.
    pub mdt: String,
    /// The reader that was registered there, such as `cl1`.
    pub user: String,
}

/// Where announcements of a broker come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Announcements {
    /// The broker, without a password.
    pub broker: String,
    /// The file with the password.
    pub credentials: Option<PathBuf>,
    /// A file of further certificates that are trusted.
    pub ca: Option<PathBuf>,
    /// Where they are published.
    pub exchange: String,
    /// How their topics begin.
    pub topic_prefix: String,
    /// How the topics that are wanted go on: 1 to 100.
    pub subtopics: Vec<String>,
    /// The queue that keeps them for this job.
    pub queue: String,
    /// What messages call the source; else it is `file:` and the path of that.
    pub base_url: Option<String>,
}

/// How hard it is worked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Limits {
    /// Bytes read (and written) in a second.
    pub bytes_per_second: Option<u64>,
    /// Requests made in a second.
    pub requests_per_second: Option<u64>,
    /// Requests in flight; found out without it.
    pub jobs: Option<usize>,
}

/// How other hosts are reached.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reach {
    /// The command that connects, with its arguments.
    pub ssh: Vec<String>,
    /// The program there, with what starts it.
    pub agent_path: Vec<String>,
    /// Connections to each host; found out without it.
    pub streams: Option<usize>,
    /// The level of compression on the way, 1 to 19.
    pub compress: Option<i32>,
    /// What is copied to a host that lacks the program.
    pub deploy: Option<Deploy>,
    /// For how long a lost connection is tried again.
    pub reconnect: Duration,
}

/// What is copied to a host that lacks the program.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Deploy {
    /// This program.
    Own,
    /// This file.
    File(PathBuf),
}

/// Where metrics can be asked for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Metrics {
    /// Address and port: of the loopback device unless the job says otherwise.
    pub listen: SocketAddr,
}
