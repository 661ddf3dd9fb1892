//! Copies of data sets: the part of a distribution that touches files.
//!
//! A source makes a [`Catalogue`] of its trees. Nodes fetch the catalogue by its hash, and then its
//! units of content in any order. Nothing that has another hash than the catalogue states is
//! written, served or renamed to its final name.

mod build;
mod catalogue;
mod cursor;
mod error;
mod format;
mod layout;
mod part_writer;
mod parts;
mod place;
mod reader;
mod walk;

pub use catalogue::{Catalogue, EntryGuard};
pub use error::{Error, Result};
pub use format::{
    CatalogueEntry, DataExtent, ENTRIES_MAX, EntryBody, EntryFacts, Hash, PART_BYTES_MAX, SetHash,
    UNIT_BYTES,
};
pub use parts::CatalogueReceiver;
pub use reader::UnitReader;
pub use walk::BuildOptions;
