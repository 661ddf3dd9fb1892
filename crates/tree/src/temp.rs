//! Names of unfinished entries on the replica.
//!
//! `.driftless-tmp-` and 32 hexadecimal digits. The form is fixed, so that the next run knows what
//! an interrupted one left. Locks have names of their own (`lock/names.rs`).

use crate::random_id;
use driftless_model::{
    LOCK, LOCK_SIGN, UNFINISHED as PREFIX, has_unfinished_form, is_reserved_name,
};
use std::ffi::{CStr, CString};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// Random bits at the end of a name that [`temp_name`] gives.
const END_BITS: u32 = 24;
/// Names that this process has given. A counter orders them whatever becomes of the clock.
static GIVEN: AtomicU64 = AtomicU64::new(0);

const BETWEEN: &[u8] = b".driftless-respelt-";

/// The attributes that a mark may be kept in, in the order in which they are tried: `trusted.*` is
/// root's alone (xattr(7)).
pub const MARK_ATTRIBUTES: [&CStr; 2] = [c"trusted.driftless.mark", c"user.driftless.mark"];
/// The mark of a replica, in its root, where the file system has no attributes or no room for it.
pub const ROOT_MARK: &CStr = c".driftless-tmp-00000000000000000000000000000001";
/// The lock in the root of a replica as earlier versions called it.
pub const FORMER_ROOT_LOCK: &CStr = c".driftless-tmp-00000000000000000000000000000002";
/// The sign of that lock.
pub const FORMER_ROOT_SIGN: &CStr = c".driftless-tmp-00000000000000000000000000000003";
/// The files that runs keep in the root of their replica.
pub const ROOT_NAMES: [&CStr; 5] = [
    ROOT_MARK,
    LOCK,
    LOCK_SIGN,
    FORMER_ROOT_LOCK,
    FORMER_ROOT_SIGN,
];

/// Whether `name` is what a run keeps in the root of its replica. No listing of a root shows it, on
/// either side: it is neither copied, compared nor counted, and is no leftover. A user's own file at
/// the name of a lock is shown in the root of a source.
pub fn is_root_name(name: &CStr) -> bool {
    is_temp_name(name) && ROOT_NAMES.contains(&name)
}

/// Returns a new name: a random number of this process (64 bits), the count of earlier names (40
/// bits), and a random end (24 bits), so that no other user can make an entry of the next name.
pub fn temp_name() -> CString {
    let half = u128::from(number_of_process()) << 64;
    let count = GIVEN.fetch_add(1, Relaxed) << END_BITS;
    let end = fastrand::u64(..1 << END_BITS);
    from_number(half | u128::from(count | end))
}

/// Returns how many names this process has given by [`temp_name`].
pub fn temp_names_given() -> u64 {
    GIVEN.load(Relaxed)
}

/// Returns how many names this process had given before it gave this one by [`temp_name`]. Returns
/// `None` for the name of another process.
pub fn own_temp_number(name: &CStr) -> Option<u64> {
    let half = format!("{:016x}", number_of_process());
    let digits = name.to_bytes().strip_prefix(PREFIX)?;
    let rest = digits.strip_prefix(half.as_bytes())?;
    let number = u64::from_str_radix(std::str::from_utf8(rest).ok()?, 16).ok()?;
    is_temp_name(name).then_some(number >> END_BITS)
}

/// Returns a number that this process draws once.
fn number_of_process() -> u64 {
    static NUMBER: OnceLock<u64> = OnceLock::new();
    *NUMBER.get_or_init(|| (random_id() >> 64) as u64)
}

/// The name under which the unfinished copy of `name` is found again by the next run: the FNV-1a
/// hash of its bytes (128 bits; draft-eastlake-fnv, offset basis and prime from section 5).
pub fn stable_temp_name(name: &CStr) -> CString {
    from_number(fnv1a(name.to_bytes()))
}

/// The same where several processes copy the same files at once: only the one that calls itself
/// `own` finds the copy again.
pub fn own_temp_name(name: &CStr, own: u128) -> CString {
    from_number(fnv1a(name.to_bytes()) ^ own)
}

/// The name that an entry has for a moment on its way from one spelling to that of `name`. It does
/// not have the form of an unfinished entry: what has this name is the user's own, and no run takes
/// it for a leftover.
pub fn between_name(name: &CStr) -> CString {
    let text = format!(
        "{}{:032x}",
        String::from_utf8_lossy(BETWEEN),
        fnv1a(name.to_bytes())
    );
    CString::new(text).expect("hexadecimal digits hold no NUL")
}

/// Whether `name` has the form that [`between_name`] gives.
pub fn is_between_name(name: &CStr) -> bool {
    has_unfinished_form(name.to_bytes(), BETWEEN)
}

/// The FNV-1a hash of some bytes, of 128 bits.
pub fn fnv1a(bytes: &[u8]) -> u128 {
    const BASIS: u128 = 0x6c62_272e_07bb_0142_62b8_2175_6295_c58d;
    const PRIME: u128 = 0x0000_0000_0100_0000_0000_0000_0000_013b;
    bytes.iter().fold(BASIS, |hash, byte| {
        (hash ^ u128::from(*byte)).wrapping_mul(PRIME)
    })
}

/// The name of this number.
pub fn from_number(number: u128) -> CString {
    let text = format!("{}{number:032x}", String::from_utf8_lossy(PREFIX));
    CString::new(text).expect("hexadecimal digits hold no NUL")
}

/// Whether `name` has the form of an unfinished entry or of a lock.
pub fn is_temp_name(name: &CStr) -> bool {
    is_reserved_name(name.to_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_names_are_numbered_in_their_order() {
        let before = temp_names_given();
        let numbers = [0, 1].map(|_| own_temp_number(&temp_name()).expect("a number"));
        assert!(before <= numbers[0] && numbers[0] < numbers[1]);
        assert!(numbers[1] < temp_names_given());
        let others = [
            stable_temp_name(c"a"),
            from_number(7),
            c".driftless-tmp-".into(),
            c"name".into(),
        ];
        assert!(others.iter().all(|name| own_temp_number(name).is_none()));
    }

    #[test]
    fn temp_names_are_told_from_others() {
        assert!(is_temp_name(&temp_name()) && is_temp_name(&stable_temp_name(c"a")));
        assert_ne!(stable_temp_name(c"a"), stable_temp_name(c"b"));
        assert_ne!(temp_name(), temp_name());
        assert_ne!(own_temp_name(c"a", 1), own_temp_name(c"a", 2));
        assert!(is_temp_name(&own_temp_name(c"a", 1)));
        let between = between_name(c"a");
        assert!(
            is_between_name(&between) && !is_temp_name(&between) && between != between_name(c"b")
        );
        assert!(
            is_temp_name(ROOT_MARK)
                && ROOT_NAMES.into_iter().all(is_root_name)
                && !is_root_name(&temp_name())
        );
        assert!(
            !is_temp_name(c".driftless-tmp-")
                && !is_temp_name(c".driftless-tmp-0123456789abcdef0123456789abcdeg")
        );
    }
}
