//! Jobs from configurations of `sr3`: what is printed where, and how it ends.
#![allow(clippy::disallowed_methods)]

mod common;

use common::driftless;
use common::mirror::Mirror;
use driftless_testkit::Outcome;
use driftless_testkit::scratch::scratch_folder;
use std::fs;
use std::path::Path;

const CONFIGURATION: &str = "\
broker amqp://feed:hidden@broker/site
exchange xs_feed
batch 25
mirror True
baseDir /src/two\twords
directory /dst/grün
accept .*
";

fn import(file: &Path, more: &[&str]) -> Outcome {
    let import = driftless().arg("mirror").arg("import-sr3").arg(file);
    more.iter()
        .fold(import, |import, one| import.arg(one))
        .run()
}

#[test]
fn a_configuration_becomes_a_job_and_what_is_left_out_is_told() {
    let folder = scratch_folder();
    let subscribe = folder.path().join("subscribe");
    fs::create_dir(&subscribe).expect("a folder");
    let file = subscribe.join("hubs.conf");
    fs::write(&file, CONFIGURATION).expect("a file");
    let imported = import(&file, &[]).expect(0);
    let (job, left) = (imported.stdout_text(), imported.stderr_text());
    assert!(left.contains("hubs.conf:3: batch: "), "{left}");
    assert!(left.contains("hubs.conf:1: broker: "), "{left}");
    // What holds without a line has no place.
    assert!(left.contains("hubs.conf: fileEvents: "), "{left}");
    assert!(
        !left.contains("hidden") && !job.contains("hidden"),
        "{job}{left}"
    );
    let written = folder.path().join("hubs.toml");
    let here = folder.path().to_str().expect("text");
    fs::write(&written, job.replace("/dst", here)).expect("a file");
    // The job can be run as it is, but for the password.
    let mirror = Mirror::idle(folder.path(), "");
    let check = mirror.command_of("check", &written).run().expect(2);
    let why = check.stderr_text();
    assert!(
        why.contains("announcements.credentials: it is missing"),
        "{why}"
    );
}

#[test]
fn what_a_configuration_publishes_can_be_run() {
    let folder = scratch_folder();
    let file = folder.path().join("hubs.conf");
    let here = folder.path().to_str().expect("text");
    let lines = CONFIGURATION.replace("/dst", here);
    let post = format!("post_broker amqp://out:hidden@broker/\npost_baseUrl file:{here}/grün\n");
    fs::write(&file, format!("{lines}{post}")).expect("a file");
    let imported = import(&file, &["--component", "sarra"]).expect(0);
    let job = imported.stdout_text();
    assert!(job.contains("[publish]\nbroker = \"amqp://out@"), "{job}");
    let written = folder.path().join("hubs.toml");
    fs::write(&written, &job).expect("a file");
    let mirror = Mirror::idle(folder.path(), "");
    let check = mirror.command_of("check", &written);
    let _said = check.env("DRIFTLESS_QUEUE_PASSWORD", "x").run().expect(0);
}

#[test]
fn the_component_is_that_of_the_folder_unless_it_is_named() {
    let folder = scratch_folder();
    let file = folder.path().join("hubs.conf");
    fs::write(&file, CONFIGURATION).expect("a file");
    let refused = import(&file, &[]).expect(2).stderr_text();
    assert!(refused.contains("--component"), "{refused}");
    let named = import(&file, &["--component", "subscribe"]).expect(0);
    assert!(named.stdout_text().contains("name = \"hubs\"\n"));
    let refused = import(&file, &["--component", "poll"]).expect(2);
    assert!(refused.stderr_text().contains("\"poll\" is none of"));
}

#[test]
fn what_cannot_be_read_is_refused() {
    let folder = scratch_folder();
    let file = folder.path().join("bytes.conf");
    fs::write(&file, b"broker \xff\n").expect("a file");
    for path in [&*file, folder.path(), Path::new("/nonexistent.conf")] {
        let refused = import(path, &["--component", "watch"]).expect(2);
        assert_eq!(refused.stdout_text(), "", "{path:?}");
    }
}

/// Each path is one that a job can have, or is told and asked for.
#[test]
fn paths_that_go_up_or_begin_nowhere_are_asked_for() {
    let folder = scratch_folder();
    let file = folder.path().join("hubs.conf");
    let here = folder.path().to_str().expect("text");
    for (dir, is_taken) in [
        ("HERE//./r/", true),
        ("HERE/a/../r", false),
        ("../r", false),
        ("HERE/${NO}/r", false),
        ("/", false),
        ("HERE/s/r", false),
        ("HERE/s", false),
    ] {
        let dir = dir.replace("HERE", here);
        let text = format!("broker amqp://u@h\nbaseDir {here}/s\nmirror\ndirectory {dir}\n");
        fs::write(&file, text).expect("a file");
        let imported = import(&file, &["--component", "subscribe"]).expect(0);
        let (job, left) = (imported.stdout_text(), imported.stderr_text());
        let taken = format!("replica = \"{here}/r\"\n");
        assert_eq!(job.contains(&taken), is_taken, "{dir}: {job}");
        let asked = "# replica = \"...\"  # ";
        assert_eq!(job.contains(asked), !is_taken, "{dir}: {job}");
        assert_eq!(left.contains(":4: directory: "), !is_taken, "{dir}: {left}");
        let answered = job.replace("# replica = \"...\"", &taken);
        let written = folder.path().join("hubs.toml");
        fs::write(&written, answered).expect("a file");
        let mirror = Mirror::idle(folder.path(), "");
        let check = mirror.command_of("check", &written);
        let _said = check.env("DRIFTLESS_QUEUE_PASSWORD", "x").run().expect(0);
    }
}
