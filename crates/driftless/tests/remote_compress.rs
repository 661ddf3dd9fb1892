//! `--compress`: what crosses a line gets smaller where it can, costs next to nothing where it
//! cannot, and arrives as it was sent.
#![allow(clippy::disallowed_methods)]

mod common;

use common::far::{Far, Way};
use common::{check_equal, put, stage};
use driftless_testkit::{Profile, Relay, build_tree};
use std::path::Path;

const MIB: usize = 1 << 20;
/// From 64 MiB on, files are copied in pieces.
const LARGE_BYTES: usize = 66 * MIB;

/// Small files, some that cross in one piece each, and one that is copied in many. Returns the
/// bytes of all.
fn plant(src: &Path, content: impl Fn(u64, usize) -> Vec<u8>) -> u64 {
    let small = (0..300).map(|index| {
        (
            format!("dir-{}/small-{index}", index % 7),
            4000 + index * 30,
        )
    });
    let middle = (300..310).map(|index| (format!("middle-{index}"), 3 * MIB));
    let all = small
        .chain(middle)
        .chain([("large".to_owned(), LARGE_BYTES)]);
    all.zip(0..)
        .map(|((name, bytes), seed)| {
            put(&src.join(name), content(seed, bytes));
            bytes as u64
        })
        .sum()
}

fn text(seed: u64, len: usize) -> Vec<u8> {
    let lines = (0..).flat_map(|line: u64| {
        format!(
            "run {seed}, event {line}: the value was {}\n",
            line * seed % 1013
        )
        .into_bytes()
    });
    lines.take(len).collect()
}

fn random(seed: u64, len: usize) -> Vec<u8> {
    let mut rng = fastrand::Rng::with_seed(seed);
    let mut bytes = vec![0; len];
    rng.fill(&mut bytes);
    bytes
}

/// The bytes that a first copy sends over the line, both ways.
fn crossed(way: Way, src: &Path, dst: &Path, arguments: &[&str]) -> u64 {
    let far = Far::root();
    let relay = Relay::start(far.server.address());
    let outcome =
        far.via(relay.address())
            .sync_ok(way, src, dst, arguments.iter().chain(&["--streams=2"]));
    check_equal(src, dst, &outcome.describe());
    driftless_testkit::remove_deep(dst).expect("remove");
    relay.passed().both()
}

#[test]
fn text_crosses_with_a_fraction_of_its_bytes() {
    let (_scratch, src, dst) = stage();
    plant(&src, text);
    for way in [Way::Push, Way::Pull] {
        let plain = crossed(way, &src, &dst, &[]);
        let (low, high) = (
            crossed(way, &src, &dst, &["--compress"]),
            crossed(way, &src, &dst, &["--compress=9"]),
        );
        println!("{way:?}: {plain} bytes, {low} compressed, {high} at level 9");
        assert!(plain > 90 * MIB as u64, "{way:?}: the control: {plain}");
        assert!(low < plain / 4, "{way:?}: {low} of {plain}");
        assert!(high < low, "{way:?}: {high} of {low}");
    }
}

#[test]
fn random_content_costs_next_to_nothing() {
    let (_scratch, src, dst) = stage();
    let content = plant(&src, random);
    for way in [Way::Push, Way::Pull] {
        let (plain, compressed) = (
            crossed(way, &src, &dst, &[]),
            crossed(way, &src, &dst, &["--compress"]),
        );
        println!(
            "{way:?}: {content} bytes of content, {plain} on the line, {compressed} compressed"
        );
        assert!(
            plain <= content + content / 100,
            "{way:?}: nothing crosses twice: {plain} of {content}"
        );
        assert!(
            compressed <= plain + plain / 100,
            "{way:?}: {compressed} of {plain}"
        );
    }
}

#[test]
fn a_hostile_tree_arrives_as_it_is_and_verifies() {
    let far = Far::root();
    for way in Way::ALL {
        let (_scratch, src, dst) = stage();
        build_tree(&src, 61, &Profile::root());
        let _ = far.sync_ok(way, &src, &dst, ["--compress=19"]);
        check_equal(&src, &dst, &format!("{way:?}"));
        driftless_testkit::mutate(&src, 62, 60);
        let _ = far.sync_ok(
            way,
            &src,
            &dst,
            ["--compress", "--delete", "--checksum", "--verify"],
        );
        check_equal(&src, &dst, &format!("{way:?}, again"));
        let verified = far
            .command("verify", far.ends(way, &src, &dst))
            .args(["--json", "--compress"])
            .run()
            .expect(0);
        assert_eq!(verified.count("seen"), verified.count("same"));
    }
}

#[test]
fn levels_that_do_not_exist_are_refused() {
    let (_scratch, src, dst) = stage();
    for level in ["0", "20", "-1", "fast"] {
        let outcome = common::sync(&src, &dst)
            .arg(format!("--compress={level}"))
            .run()
            .expect(2);
        assert!(
            outcome.stderr_text().contains("--compress") && !dst.exists(),
            "{level}\n{}",
            outcome.describe()
        );
    }
}
