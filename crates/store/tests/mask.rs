//! The mask of the process plays no part. It belongs to the process, so this test is alone in its
//! program.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{Bench, assert_same, cast};
use driftless_testkit::{Profile, build_tree};
use rustix::fs::Mode;

#[test]
fn mask_of_the_process_plays_no_part() {
    let bench = Bench::new();
    build_tree(&bench.path("src"), 81, &Profile::root());
    for mask in [0, 0o077, 0o277] {
        rustix::process::umask(Mode::from_raw_mode(mask));
        std::fs::create_dir_all(bench.path("to")).expect("made");
        let node = bench.node();
        cast(&node, &bench.build(), &bench.to()).expect("placed");
        assert_same(
            &bench.path("src"),
            &bench.path("to/src"),
            &format!("mask {mask:o}"),
        );
        node.purge(&driftless_store::PurgeWhat::All)
            .expect("purged");
    }
}
