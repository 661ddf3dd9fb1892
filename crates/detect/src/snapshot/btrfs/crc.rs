//! The checksum of a command: CRC-32C (Castagnoli, reflected polynomial 0x82f63b78) as the kernel's
//! `crc32c` computes it, with 0 at the start and nothing inverted (fs/btrfs/send.c, `send_cmd`).

const TABLE: [u32; 256] = table();

const fn table() -> [u32; 256] {
    let mut table = [0; 256];
    let mut byte = 0;
    while byte < 256 {
        let (mut crc, mut bit) = (byte as u32, 0);
        while bit < 8 {
            crc = (crc >> 1) ^ if crc & 1 == 1 { 0x82f6_3b78 } else { 0 };
            bit += 1;
        }
        table[byte] = crc;
        byte += 1;
    }
    table
}

/// The checksum of what has `crc` so far, and of `bytes` behind it.
pub(super) fn crc32c(crc: u32, bytes: &[u8]) -> u32 {
    bytes.iter().fold(crc, |crc, byte| {
        TABLE[usize::from(crc as u8 ^ byte)] ^ (crc >> 8)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_check_value_of_the_catalogue_comes_out() {
        // "123456789" gives 0xe3069283 in the inverted form (RFC 3720, appendix B.4, has others).
        assert_eq!(!crc32c(!0, b"123456789"), 0xe306_9283);
        assert_eq!(!crc32c(!0, &[0; 32]), 0x8a91_36aa);
        assert_eq!(
            crc32c(crc32c(0, b"1234"), b"56789"),
            crc32c(0, b"123456789")
        );
    }
}
