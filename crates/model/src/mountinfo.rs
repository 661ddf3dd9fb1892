//! Names as the kernel writes them in a table of mounts.

/// The bytes of a field of `/proc/PID/mountinfo`, where space, tab, line feed and backslash stand as
/// a backslash and three octal digits (proc_pid_mountinfo(5)).
pub fn unescape_mountinfo(field: &[u8]) -> Vec<u8> {
    let (mut bytes, mut left) = (Vec::with_capacity(field.len()), field);
    while let Some((first, rest)) = left.split_first() {
        let octal = rest
            .get(..3)
            .filter(|_| *first == b'\\')
            .and_then(|digits| u8::from_str_radix(str::from_utf8(digits).ok()?, 8).ok());
        bytes.push(octal.unwrap_or(*first));
        left = if octal.is_some() { &rest[3..] } else { rest };
    }
    bytes
}
