//! Names as text for messages.
//!
//! Names are bytes; a test that fails must say which bytes without upsetting the terminal it prints
//! to.

/// Shows bytes as text: printable ASCII as it is, everything else as `\xNN`.
pub fn escape(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len());
    for &byte in bytes {
        match byte {
            b'\\' => text.push_str("\\\\"),
            0x20..=0x7e => text.push(char::from(byte)),
            _ => text.push_str(&format!("\\x{byte:02x}")),
        }
    }
    text
}

/// Cuts a long text in the middle of nothing: the first `max` characters and how many were left
/// out.
pub fn shorten(text: &str, max: usize) -> String {
    let count = text.chars().count();
    if count <= max {
        return text.to_owned();
    }
    let head: String = text.chars().take(max).collect();
    format!("{head}... ({} more)", count - max)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn control_bytes_never_reach_the_terminal() {
        assert_eq!(escape(b"a\x1b[31m\n\xff\\"), "a\\x1b[31m\\x0a\\xff\\\\");
    }
}
