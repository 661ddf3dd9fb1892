//! What each key becomes, and what is there without it.

use super::{TREES, errors, job, read, seconds};
use driftless_mirror::job::{Announcements, Deploy, Detect, ListFormat, Publish, Weekday, parse};
use driftless_model::{Cache, DeleteLimit, Durability, Keep, Level, Policy};
use std::path::Path;
use std::time::Duration;

#[test]
fn two_trees_are_a_job_and_the_rest_has_defaults() {
    let job = job("");
    assert_eq!(job.name, "projects");
    assert_eq!(job.source, "/projects");
    assert_eq!(job.replicas, ["far:/projects"]);
    assert_eq!(job.detect, [Detect::Walk]);
    assert_eq!(job.rpo, seconds(48 * 3600));
    assert_eq!(job.policy, Policy::default());
    assert_eq!(job.walk.every, Some(seconds(24 * 3600)));
    assert_eq!((job.cycle.every, job.cycle.keep), (Some(seconds(3600)), 24));
    assert_eq!(job.live.settle, seconds(2));
    assert!(job.read_only && job.fanotify.unlimited && job.quiet.is_empty());
    assert_eq!(
        (&job.trash, &job.on_problem, &job.metrics),
        (&None, &None, &None)
    );
    assert_eq!(job.operators, None);
    assert_eq!(
        (&job.command, &job.list, &job.lustre),
        (&None, &None, &None)
    );
    assert_eq!(job.limits.bytes_per_second, None);
    assert_eq!(
        (job.limits.requests_per_second, job.limits.jobs),
        (None, None)
    );
    assert_eq!(job.reach.ssh, ["ssh"]);
    assert_eq!(job.reach.agent_path, ["driftless"]);
    assert_eq!((job.reach.streams, job.reach.compress), (None, None));
    assert_eq!(
        (job.reach.deploy, job.reach.reconnect),
        (None, seconds(300))
    );
}

#[test]
fn each_key_becomes_its_value() {
    let job = read(
        r#"
name = "a-B_1.x"
source = "/s"
replicas = ["/r", "h:/r"]
detect = ["walk", "fanotify", "btrfs", "announcements"]
rpo = "90s"
quiet = ["Mon-Fri 08:00-18:00", "Sun"]
on_problem = "mail -s 'a problem' root"
operators = "ops"
delete = true
max_delete = "10%"
delete_excluded = true
delete_unlike = true
read_only = false
required = [".here", "a/b"]
filters = ["+ keep.tmp", "- *.tmp"]
one_file_system = true
min_size = 1
max_size = "2G"
level = "content"
read_back = "media"
cache = "direct"
durability = "file"
trash = { age = "30d", bytes = "10T" }
[walk]
every = "never"
[cycle]
every = "back-to-back"
keep = 1
[live]
settle = "250ms"
[fanotify]
unlimited = false
[keep]
owner = false
demand_owners = true
modify_window = "2s"
atimes = true
[limits]
bytes_per_second = "100M"
requests_per_second = 0x10
jobs = 8
[reach]
ssh = "ssh -p 2222"
agent_path = "sudo -n driftless"
streams = 4
compress = 3
deploy = "/opt/driftless"
reconnect = "0s"
[metrics]
listen = "[::1]:9464"
"#,
    )
    .unwrap_or_else(|errors| panic!("{errors}"));
    assert_eq!((&*job.name, &*job.source), ("a-B_1.x", "/s"));
    assert_eq!(job.replicas, ["/r", "h:/r"]);
    assert!(job.is_live() && job.snapshots() == Some(Detect::Btrfs));
    assert_eq!(job.rpo, seconds(90));
    assert!(job.quiet.holds(Weekday::Monday, 480) && job.quiet.holds(Weekday::Sunday, 0));
    assert_eq!(job.on_problem.unwrap(), ["mail", "-s", "a problem", "root"]);
    assert_eq!(job.operators.unwrap(), "ops");
    let trash = job.trash.unwrap();
    assert_eq!(trash.age, Some(seconds(30 * 24 * 3600)));
    assert_eq!(trash.bytes, Some(10 << 40));
    let policy = &job.policy;
    assert!(policy.delete && policy.delete_excluded && policy.delete_unlike);
    assert!(policy.one_file_system);
    assert_eq!(policy.delete_limit, Some(DeleteLimit::Percent(10)));
    assert_eq!(policy.required.len(), 2);
    assert_eq!(
        (policy.level, policy.read_back),
        (Level::Content, Some(Level::Media))
    );
    assert_eq!(
        (policy.cache, policy.durability),
        (Cache::Direct, Durability::File)
    );
    let filter = &policy.filter;
    assert_eq!((filter.size_min, filter.size_max), (Some(1), Some(2 << 30)));
    assert!(filter.takes(b"a/keep.tmp", false) && !filter.takes(b"a/b.tmp", false));
    let kept = Keep {
        owner: false,
        demands_owners: true,
        modify_window: 2,
        atimes: true,
        ..Keep::default()
    };
    assert_eq!(policy.keep, kept);
    assert_eq!(
        (job.walk.every, job.cycle.every, job.cycle.keep),
        (None, None, 1)
    );
    assert_eq!(job.live.settle, Duration::from_millis(250));
    assert!(!job.fanotify.unlimited && !job.read_only);
    assert_eq!(job.limits.bytes_per_second, Some(100 << 20));
    assert_eq!(job.limits.requests_per_second, Some(16));
    assert_eq!(job.limits.jobs, Some(8));
    assert_eq!(job.reach.ssh, ["ssh", "-p", "2222"]);
    assert_eq!(job.reach.agent_path, ["sudo", "-n", "driftless"]);
    assert_eq!((job.reach.streams, job.reach.compress), (Some(4), Some(3)));
    assert_eq!(
        job.reach.deploy,
        Some(Deploy::File("/opt/driftless".into()))
    );
    assert_eq!(job.reach.reconnect, Duration::ZERO);
    assert_eq!(job.metrics.unwrap().listen.port(), 9464);
}

#[test]
fn detectors_have_their_tables() {
    let one = job(
        "detect = [\"command\"]\n[command]\ncreate = \"c %n\"\nlist = \"l\"\ndelete = \"d\"\ndiff = \"f -x\"\n",
    );
    assert_eq!(one.command.unwrap().diff, ["f", "-x"]);
    assert!(one.list.is_none() && one.lustre.is_none());
    let one = job("detect = [\"gpfs\"]\ngpfs.fileset = \"prod\"\n").gpfs;
    assert_eq!((one.device, one.fileset.as_deref()), (None, Some("prod")));
    let one = job("detect = [\"list\"]\nlist = { path = \"/run/x\", format = \"nul\" }\n");
    assert_eq!(one.list.unwrap().format, ListFormat::Nul);
    let one =
        job("detect = [\"lustre\"]\nlustre.mdt = \"scratch-MDT0000\"\nlustre.user = \"cl1\"\n");
    assert_eq!(one.lustre.unwrap().user, "cl1");
    let one = job("detect = [\"announcements\"]\n");
    assert_eq!(one.announcements, None);
    assert_eq!(
        job("detect = [\"list\"]\nlist.path = \"x\"\n").rpo,
        seconds(300)
    );
    assert_eq!(job("detect = [\"zfs\", \"walk\"]\n").rpo, seconds(4 * 3600));
}

#[test]
fn announcements_of_a_broker_have_their_table() {
    let must = "detect = [\"announcements\"]\n[announcements]\nbroker = \"amqps://u@h/v\"\n\
                exchange = \"xs_u\"\nqueue = \"q_u.x\"\n";
    let expected = Announcements {
        broker: "amqps://u@h/v".into(),
        credentials: None,
        ca: None,
        exchange: "xs_u".into(),
        topic_prefix: "v03".into(),
        subtopics: vec!["#".into()],
        queue: "q_u.x".into(),
        base_url: None,
    };
    assert_eq!(job(must).announcements, Some(expected.clone()));
    let more = "credentials = \"/c\"\nca = \"/a\"\ntopic_prefix = \"v03.post\"\n\
                subtopics = [\"a.#\", \"b\"]\nbase_url = \"sftp://me@h/s\"\n";
    let expected = Announcements {
        credentials: Some("/c".into()),
        ca: Some("/a".into()),
        topic_prefix: "v03.post".into(),
        subtopics: vec!["a.#".into(), "b".into()],
        base_url: Some("sftp://me@h/s".into()),
        ..expected
    };
    assert_eq!(job(&format!("{must}{more}")).announcements, Some(expected));
}

#[test]
fn what_is_published_has_a_table() {
    let must = "[publish]\nbroker = \"amqps://u@h/v\"\nexchange = \"xs_u\"\n";
    let expected = Publish {
        broker: "amqps://u@h/v".into(),
        credentials: None,
        ca: None,
        exchange: "xs_u".into(),
        topic_prefix: "v03".into(),
        base_url: None,
    };
    assert_eq!(job(must).publish, Some(expected.clone()));
    let more = "credentials = \"/c\"\nca = \"/a\"\ntopic_prefix = \"v03.post\"\n\
                base_url = \"sftp://me@h/s\"\n";
    let expected = Publish {
        credentials: Some("/c".into()),
        ca: Some("/a".into()),
        topic_prefix: "v03.post".into(),
        base_url: Some("sftp://me@h/s".into()),
        ..expected
    };
    assert_eq!(job(&format!("{must}{more}")).publish, Some(expected));
    assert_eq!(job("").publish, None);
}

#[test]
fn what_is_short_means_what_is_long() {
    let month = Some(seconds(30 * 24 * 3600));
    for trash in [
        "trash = \"30d\"",
        "trash.age = \"30d\"",
        "[trash]\nage = \"30d\"",
    ] {
        let trash = job(&format!("delete = true\n{trash}")).trash.unwrap();
        assert_eq!((trash.age, trash.bytes), (month, None));
    }
    for limit in ["1000", "\"1000\"", "1_000"] {
        let job = job(&format!("delete = true\nmax_delete = {limit}\n"));
        assert_eq!(
            job.policy.delete_limit,
            Some(DeleteLimit::Count(1000)),
            "{limit}"
        );
    }
    assert_eq!(job("reach.deploy = true").reach.deploy, Some(Deploy::Own));
    assert_eq!(job("reach.deploy = false").reach.deploy, None);
    assert_eq!(job("limits.jobs = \"auto\"").limits.jobs, None);
}

#[test]
fn the_name_is_that_of_the_file_if_it_can_be_one() {
    for (place, name) in [
        ("a/projects.toml", Some("projects")),
        ("projects", Some("projects")),
        ("a.b.toml", Some("a.b")),
        ("a b.toml", None),
        (".hidden.toml", None),
        ("-rf.toml", None),
        ("grün.toml", None),
        ("/", None),
    ] {
        let found = parse(TREES, Path::new(place)).map(|job| job.name);
        assert_eq!(found.as_deref().ok(), name, "{place}");
        if let Err(errors) = found {
            let text = errors.to_string();
            assert!(text.contains(":1:1: name: it is missing"), "{text}");
        }
    }
    let long = "a".repeat(65);
    for bad in ["", "a/b", "..", ".a", "-a", "a b", "é", &long] {
        let all = errors(&format!("name = \"{bad}\"\n{TREES}"));
        assert!(all[0].starts_with("1:8: name: "), "{bad}: {all:?}");
    }
}
