//! The task file of Exludus Replicator, with a program in the place of BLAST.

use crate::cluster::Cluster;
use crate::site::{Site, USER};
use driftless_testkit::wait_slowly_until;
use std::fs;
use std::path::Path;

/// Folders that the task file of the seed names.
const SEED_DATA: &str = "/var/tmp/blastSTAGE";
const SEED_SCRIPT: &str = "/wrg/home/csci/cjm/blast/blast_rep.sh";

/// Removes what the task file of the seed names.
struct SeedFolders;

impl Drop for SeedFolders {
    fn drop(&mut self) {
        for folder in [SEED_DATA, "/wrg"] {
            let _it_may_be_missing = fs::remove_dir_all(folder);
        }
    }
}

/// Runs the task file of the seed with a search that reads the data set.
pub fn run_seed<C: Cluster>(task_variable: &str) {
    let site: Site<C> = Site::start(4);
    let seed = Path::new(env!("CARGO_MANIFEST_DIR")).join("../taskfile/tests/files/example.tdf");
    let text = fs::read_to_string(&seed).expect("the task file");
    let out = site.make_out("out");
    let _folders = SeedFolders;
    fs::create_dir_all(SEED_DATA).expect("a folder");
    let files: Vec<&str> = text
        .split_whitespace()
        .filter(|word| word.starts_with(SEED_DATA))
        .map(|word| word.trim_end_matches(';'))
        .collect();
    assert_eq!(files.len(), 19);
    for file in &files {
        fs::write(file, format!("{file}\n").repeat(10_000)).expect("a file");
    }
    fs::create_dir_all(Path::new(SEED_SCRIPT).parent().expect("a folder")).expect("made");
    let search = format!(
        "#!/bin/sh\ncat \"$SPOOL_DIRECTORY\"/nr.* | wc -l >{0}/new.${1} && \
         mv {0}/new.${1} {0}/${1}\n",
        out.display(),
        task_variable
    );
    fs::write(SEED_SCRIPT, search).expect("a script");
    let job = site.submit_file(USER, &seed);
    let done = || (1..=20).all(|task| out.join(task.to_string()).exists());
    wait_slowly_until("all tasks have run", done);
    for task in 1..=20 {
        let lines = fs::read_to_string(out.join(task.to_string())).expect("a result");
        assert_eq!(lines.trim(), "190000", "task {task}");
    }
    site.wait_until_closed(&job);
    site.check_nothing_is_left();
}
