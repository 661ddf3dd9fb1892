//! A plain 128-bit hash for content and snapshots.
//!
//! It has to notice accidents, not to withstand an attacker, so two multiply-rotate lanes with
//! different constants are enough, and it shares no code with the hash that driftless itself uses.

const LANES: [u64; 2] = [0x9e37_79b9_7f4a_7c15, 0xc2b2_ae3d_27d4_eb4f];

/// The state of a running hash.
#[derive(Clone, Debug)]
pub(crate) struct Hash {
    lanes: [u64; 2],
}

impl Hash {
    pub(crate) fn new() -> Self {
        Hash { lanes: LANES }
    }

    pub(crate) fn word(&mut self, word: u64) {
        for (lane, constant) in self.lanes.iter_mut().zip(LANES) {
            *lane = (lane.rotate_left(23) ^ word).wrapping_mul(constant | 1);
            *lane ^= *lane >> 29;
        }
    }

    /// Adds bytes together with their length, so that neighbouring fields cannot run into each
    /// other.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) {
        self.word(bytes.len() as u64);
        let mut chunks = bytes.chunks_exact(8);
        for chunk in &mut chunks {
            self.word(u64::from_le_bytes(
                chunk.try_into().expect("chunks of eight"),
            ));
        }
        let mut last = [0u8; 8];
        last[..chunks.remainder().len()].copy_from_slice(chunks.remainder());
        self.word(u64::from_le_bytes(last));
    }

    pub(crate) fn finish(&self) -> u128 {
        (u128::from(self.lanes[0]) << 64) | u128::from(self.lanes[1])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_bit_counts() {
        let base = vec![7u8; 4096];
        let mut seen = std::collections::HashSet::new();
        for bit in 0..base.len() * 8 {
            let mut changed = base.clone();
            changed[bit / 8] ^= 1 << (bit % 8);
            let mut hash = Hash::new();
            hash.bytes(&changed);
            assert!(seen.insert(hash.finish()), "bit {bit} collides");
        }
    }
}
