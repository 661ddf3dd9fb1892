//! Values of another host that the kernel would take for something else: they are refused when they
//! are decoded, and said so.
#![allow(clippy::disallowed_methods)]

mod common;

use common::liar::{Lie, Said, with_liar};
use driftless_model::Meta;
use driftless_remote::wire::{Listing, Reply};

/// `UTIME_NOW` and `UTIME_OMIT` of linux/stat.h.
const TIMES_THAT_ARE_ORDERS: [u32; 2] = [0x3fff_ffff, 0x3fff_fffe];

/// Changes the metadata of the files that an agent tells of.
fn about_files(change: impl Fn(&mut Meta) + Send + Copy + 'static) -> Lie {
    Box::new(move |mut said: Said<'_>| {
        match &mut said.reply {
            Reply::Whole(Some((entry, _))) => change(&mut entry.meta),
            Reply::Listing(listing) | Reply::Entered(_, Some(listing)) => {
                in_listing(listing, change)
            }
            _ => {}
        }
        said.unchanged()
    })
}

fn in_listing(listing: &mut Listing, change: impl Fn(&mut Meta)) {
    listing
        .told
        .iter_mut()
        .filter_map(|told| told.entry.as_mut())
        .for_each(|entry| change(&mut entry.meta));
}

#[test]
fn values_that_are_none_are_a_broken_peer_and_said_so() {
    type Change = (&'static str, fn(&mut Meta));
    let changes: [Change; 9] = [
        ("now", |meta| meta.mtime.nsec = TIMES_THAT_ARE_ORDERS[0]),
        ("leave it", |meta| {
            meta.mtime.nsec = TIMES_THAT_ARE_ORDERS[1]
        }),
        ("access time", |meta| {
            meta.atime.nsec = TIMES_THAT_ARE_ORDERS[0]
        }),
        ("a second", |meta| meta.mtime.nsec = 1_000_000_000),
        ("no owner", |meta| meta.uid = u32::MAX),
        ("no group", |meta| meta.gid = u32::MAX),
        ("a mode with a type", |meta| meta.mode |= 0o100_000),
        ("a size below zero", |meta| meta.size = u64::MAX),
        ("more blocks than bytes", |meta| meta.blocks = u64::MAX),
    ];
    for pull in [true, false] {
        for (what, change) in changes {
            let (_stage, outcome) =
                with_liar(pull, &format!("{what}, pull {pull}"), about_files(change));
            assert_ne!(
                outcome.code(),
                0,
                "{what}, pull {pull}\n{}",
                outcome.describe()
            );
            assert!(
                outcome
                    .stderr_text()
                    .contains("does not keep to the protocol"),
                "{what}, pull {pull}\n{}",
                outcome.describe()
            );
        }
    }
}
