//! Hashes of the pieces of a file (BLAKE3), by which two hosts find out where their files differ.

use crate::{Done, LocalFile, ReadFile};
use std::ops::Range;

/// What [`ReadFile::digests`] wants, by reading piece after piece.
pub fn by_reading<F: ReadFile + ?Sized>(
    file: &F,
    range: Range<u64>,
    piece: u64,
) -> Done<Vec<[u8; 32]>> {
    let mut buffer = vec![0; piece.min(range.end.saturating_sub(range.start)) as usize];
    let (mut found, mut at) = (Vec::new(), range.start);
    while at < range.end {
        let len = (range.end - at).min(piece) as usize;
        let got = file.read_at(&mut buffer[..len], at)?;
        if got == 0 {
            break;
        }
        found.push(*blake3::hash(&buffer[..got]).as_bytes());
        at += len as u64;
    }
    Ok(found)
}

/// The hashes of a range from the page cache, without copying; `None` if not all of it is there, or
/// the file ends before the range does.
pub fn of_cached(file: &LocalFile, range: Range<u64>, piece: u64) -> Option<Vec<[u8; 32]>> {
    // After the end of a file, the rest of its last page is zeros that are not its content.
    if range.is_empty() || file.meta().ok()?.size < range.end {
        return None;
    }
    let mut found = Vec::new();
    let was_whole = file.with_cached(range, |bytes| {
        found.extend(
            bytes
                .chunks(piece as usize)
                .map(|piece| *blake3::hash(piece).as_bytes()),
        );
    });
    was_whole.then_some(found)
}

#[cfg(test)]
mod tests {
    use super::*;
    use driftless_model::Side;
    use std::io::Write;

    #[test]
    fn pieces_have_the_same_hashes_cached_or_read() {
        let bytes: Vec<u8> = (0..700_001_u32).map(|at| (at / 7) as u8).collect();
        let mut file = tempfile::tempfile().expect("a file");
        file.write_all(&bytes).expect("write");
        let file = LocalFile::new(file.into(), Side::Source);
        for (range, piece) in [
            (0..700_001, 65_536),
            (4096..600_000, 4096),
            (13..500_013, 1000),
            (0..300_000, 1 << 20),
        ] {
            let expected: Vec<[u8; 32]> = bytes[range.start as usize..range.end as usize]
                .chunks(piece)
                .map(|piece| *blake3::hash(piece).as_bytes())
                .collect();
            assert_eq!(
                by_reading(&file, range.clone(), piece as u64).as_ref(),
                Ok(&expected)
            );
            assert_eq!(of_cached(&file, range, piece as u64), Some(expected));
        }
        // A hole of a tmpfs stays one.
        let hole = LocalFile::new(
            rustix::fs::memfd_create("hole", rustix::fs::MemfdFlags::CLOEXEC).expect("memory"),
            Side::Source,
        );
        rustix::fs::ftruncate(&hole.fd, 8 << 20).expect("grow");
        rustix::io::pwrite(&hole.fd, &[1; 4096], 0).expect("write");
        rustix::io::pwrite(&hole.fd, &[1; 4096], (8 << 20) - 4096).expect("write");
        assert_eq!(
            hole.digests(0..8 << 20, 65_536).map(|found| found.len()),
            Ok(128)
        );
        assert_eq!(hole.meta().map(|meta| meta.blocks * 512), Ok(8192));
        let beyond = 0..700_500;
        assert_eq!(
            of_cached(&file, beyond.clone(), 65_536),
            None,
            "there is less"
        );
        assert_eq!(
            file.digests(beyond, 65_536).map(|found| found.len()),
            Ok(11)
        );
        assert_eq!(file.digests(5..5, 65_536), Ok(Vec::new()));
    }
}
