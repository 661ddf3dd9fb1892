//! Lines as Lustre prints them, and a stand-in that looks its numbers up.

use crate::changelog::lustre::{Fid, Fids, Place};
use driftless_model::RelPath;
use std::convert::Infallible;

/// Numbers below 0x100 are directories named so, and 0x51 a file; 0x200 is a file with two names,
/// 0xfff is gone, 0xffe elsewhere, 0x7 the root.
pub(super) struct Numbers(pub(super) usize);

impl Fids for Numbers {
    type Error = Infallible;

    fn place(&mut self, fid: Fid) -> Result<Place, Infallible> {
        self.0 += 1;
        let at = |paths: &[&str], is_directory| Place::At {
            paths: paths
                .iter()
                .map(|path| RelPath::parse(path.as_bytes()).expect("a path"))
                .collect(),
            is_directory,
        };
        Ok(match fid.oid {
            0xfff => Place::Gone,
            0xffe => Place::Elsewhere,
            0x7 => at(&[""], true),
            0x51 => at(&["file"], false),
            0x200 => at(&["one", "d1/two"], false),
            oid => at(&[&format!("d{oid:x}")], true),
        })
    }
}

pub(super) fn fid(oid: u32) -> Fid {
    let seq = if oid == 0 { 0 } else { 0x2_0000_0402 };
    Fid { seq, oid, ver: 0 }
}

pub(super) fn line(kind: &str, target: u32, rest: &str) -> String {
    format!(
        "1042 {kind} 10:11:12.123456789 2026.01.31 0x1 t={} j=dd.0 ef=0xf u=0:0 nid=10.0.0.7@tcp{rest}\n",
        fid(target)
    )
}

pub(super) fn named(kind: &str, parent: u32, name: &str) -> String {
    line(kind, 0x50, &format!(" p={} {name}", fid(parent)))
}

pub(super) fn renamed(from: (u32, &str), to: (u32, &str)) -> String {
    moved(0x51, from, to)
}

pub(super) fn moved(moved: u32, from: (u32, &str), to: (u32, &str)) -> String {
    line(
        "08RENME",
        0,
        &format!(
            " p={} {} s={} sp={} {}",
            fid(to.0),
            to.1,
            fid(moved),
            fid(from.0),
            from.1
        ),
    )
}
