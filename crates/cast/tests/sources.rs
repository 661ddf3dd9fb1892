//! Casts of sources that an agent of another user reads.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{Cluster, run_node};
use driftless_cast::{CastSources, Reach, open_through_agent};
use driftless_remote::Service;
use std::fs::{self, File};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::PathBuf;

/// User and group of the agent, if this test runs as root.
const USER: u32 = 65_534;

/// The process of a node, which other tests start.
#[test]
#[ignore = "other tests start this process"]
fn node_process() {
    run_node();
}

/// The process of an agent, which other tests start.
#[test]
#[ignore = "other tests start this process"]
fn agent_process() {
    let end = |end: std::os::fd::BorrowedFd<'_>| {
        File::from(end.try_clone_to_owned().expect("an end of the pipe"))
    };
    let (input, output) = (
        end(std::io::stdin().as_fd()),
        end(std::io::stdout().as_fd()),
    );
    let service = Service {
        directories_max: 100,
        ..Service::default()
    };
    driftless_remote::serve(input, output, service).expect("served");
    // What the harness prints after its test is no message of an agent.
    std::process::exit(0);
}

/// Returns how the agent is started. As root, it gets the rights of an ordinary user.
fn reach(cluster: &Cluster) -> Reach {
    let program = std::env::current_exe().expect("the test program");
    let script = match rustix::process::geteuid().is_root() {
        true => format!(
            "exec setpriv --reuid={USER} --regid={USER} --clear-groups \
             {} agent_process --exact --ignored --nocapture",
            program.display()
        ),
        false => format!(
            "exec {} agent_process --exact --ignored --nocapture",
            program.display()
        ),
    };
    Reach {
        ssh: ["/bin/sh", "-c", &script].map(str::to_owned).to_vec(),
        streams: Some(1),
        ..cluster.settings().ssh.expect("a way to start nodes").reach
    }
}

fn open(cluster: &Cluster, names: &[&str]) -> Result<CastSources, driftless_cast::Error> {
    let paths: Vec<PathBuf> = names.iter().map(|name| cluster.path(name)).collect();
    open_through_agent("user", &paths, &reach(cluster))
}

fn own(path: &std::path::Path) {
    if rustix::process::geteuid().is_root() {
        driftless_testkit::attrs::set_owner(path, USER, USER).expect("given");
    }
}

#[test]
fn tree_behind_an_agent_is_cast() {
    let cluster = Cluster::new(2);
    fs::set_permissions(cluster.path(""), fs::Permissions::from_mode(0o755)).expect("a mode");
    cluster.write("file", 300_000);
    cluster.write("small", 3);
    fs::create_dir(cluster.path("src/below")).expect("a folder");
    cluster.write("below/empty", 0);
    fs::hard_link(cluster.path("src/small"), cluster.path("src/link")).expect("a link");
    std::os::unix::fs::symlink("small", cluster.path("src/symbolic")).expect("a link");
    for name in ["", "file", "small", "below", "below/empty"] {
        own(&cluster.path("src").join(name));
    }
    let mut settings = cluster.settings();
    settings.sources = open(&cluster, &["src"]).expect("sources");
    let report = cluster.cast(&settings);
    cluster.assert_complete(&report);
    cluster.assert_equal("n1");
    cluster.assert_equal("n2");
}

#[test]
fn agent_reads_with_its_own_rights() {
    let cluster = Cluster::new(1);
    fs::set_permissions(cluster.path(""), fs::Permissions::from_mode(0o755)).expect("a mode");
    cluster.write("secret", 100);
    let secret = cluster.path("src/secret");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o000)).expect("a mode");
    let mut settings = cluster.settings();
    settings.sources = open(&cluster, &["src"]).expect("sources");
    let stop = std::sync::atomic::AtomicBool::new(false);
    let failed = driftless_cast::cast(&settings, &*cluster.events, &stop);
    let error = failed.expect_err("no right to read").to_string();
    assert!(error.contains("src/secret"), "{error}");
    assert!(open(&cluster, &["missing"]).is_err());
}
