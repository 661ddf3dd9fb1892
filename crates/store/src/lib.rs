//! Copies of data sets: the part of a distribution that touches files.
//!
//! A source makes a [`Catalogue`] of its trees. Nodes fetch the catalogue by its hash, and then its
//! units of content in any order. Nothing that has another hash than the catalogue states is
//! written, served or renamed to its final name. A [`NodeStore`] keeps the copies of a node.

mod build;
mod catalogue;
mod check;
mod claim;
mod complete;
mod cursor;
mod error;
mod format;
mod in_use;
mod job_links;
mod layout;
mod node;
mod outbox;
mod outbox_dirs;
mod part_writer;
mod parts;
mod place;
mod placed;
mod present;
mod private;
mod proof;
mod publish;
mod purge;
mod reader;
mod readers;
mod receiver;
mod references;
mod remove;
mod reuse;
mod seen;
mod sources;
mod staging;
mod store;
mod verified;
mod walk;
mod writer;

pub use catalogue::{Catalogue, EntryGuard};
pub use check::{CheckReport, CopyFinding};
pub use complete::UnkeptMetadata;
pub use cursor::TopPlace;
pub use error::{Error, Result};
pub use format::{
    CatalogueEntry, DataExtent, ENTRIES_MAX, EntryBody, EntryFacts, Hash, PART_BYTES_MAX, SetHash,
    UNIT_BYTES,
};
pub use in_use::CopyUse;
pub use node::NodeClock;
pub use outbox::{
    OUTBOX_PAGE_NAMES, SEALED_PATH_BYTES_MAX, SealMove, SealOutcome, SealedPath, SealedPlace,
    is_outbox_name,
};
pub use parts::CatalogueReceiver;
pub use present::PresentUnits;
pub use purge::PurgeWhat;
pub use reader::UnitReader;
pub use receiver::{PlacedCopy, ReplacedVersions, SetReceiver};
pub use references::JobEnd;
pub use remove::{KeptEntry, PurgeReport, StayingCopy};
pub use reuse::ReusedContent;
pub use sources::{CastSources, OpenSource};
pub use store::{BuiltSet, NodeStore, Placing, Receiving, SetSource, overlaps};
pub use verified::VerifiedUnit;
pub use walk::{BuildOptions, CopyRights};

pub use driftless_state::holdings::{CopyRow, CopyState, TopRow, UnkeptCounts};
pub use driftless_tree::{Dir, DirRef, Host};
