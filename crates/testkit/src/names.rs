//! Names that break programs which believe that names are text.
//!
//! Every one is legal on Linux: any bytes but `/` and NUL, up to 255 of them.

use fastrand::Rng;

/// The longest name the kernel takes, in bytes.
pub const NAME_BYTES_MAX: usize = 255;

/// Names that every catalogue tree holds.
pub fn nasty_names() -> Vec<Vec<u8>> {
    let fixed: [&[u8]; 34] = [
        b"plain",
        b"with space",
        b" leading",
        b"trailing ",
        b"-rf",
        b"--delete",
        b"new\nline",
        b"carriage\rreturn",
        b"tab\tname",
        b"\x1b[31mred\x1b[0m",
        b"\x9b31m",
        b"\xff\xfe",
        b"caf\xe9",
        "caf\u{e9}".as_bytes(),
        "cafe\u{301}".as_bytes(),
        b"*",
        b"?",
        b"[a",
        b"[a-z]",
        b"{a,b}",
        b"a\\b",
        b"~",
        b"$HOME",
        b"`id`",
        b"quote\"'",
        b"#comment",
        b"+ plus",
        b"- minus",
        b"...",
        b"..a",
        b".driftless-x",
        b".hidden",
        b"\x01",
        b"%s%n",
    ];
    let mut names: Vec<Vec<u8>> = fixed.iter().map(|name| name.to_vec()).collect();
    names.push(vec![b'L'; NAME_BYTES_MAX]);
    names.push([vec![0xc3u8; NAME_BYTES_MAX - 1], vec![b'\n']].concat());
    names
}

/// A random legal name; about a third are plain, the rest are not.
pub fn random_name(rng: &mut Rng) -> Vec<u8> {
    loop {
        let name = match rng.u8(0..6) {
            0 | 1 => format!("n{}", rng.u32(..)).into_bytes(),
            2 => random_bytes(rng, 12),
            3 => [
                rng.choice(nasty_names()).unwrap_or_default(),
                rng.u16(..).to_string().into_bytes(),
            ]
            .concat(),
            4 => vec![rng.u8(b'a'..=b'z'); rng.usize(1..NAME_BYTES_MAX + 1)],
            _ => random_bytes(rng, NAME_BYTES_MAX),
        };
        if is_legal(&name) {
            return name;
        }
    }
}

fn random_bytes(rng: &mut Rng, max: usize) -> Vec<u8> {
    let length = rng.usize(1..max + 1);
    (0..length)
        .map(|_| rng.u8(1..))
        .map(|byte| if byte == b'/' { b'_' } else { byte })
        .collect()
}

/// Whether the kernel would take this as one component that is not `.` or `..`.
fn is_legal(name: &[u8]) -> bool {
    let special = name == b"." || name == b"..";
    !special
        && !name.is_empty()
        && name.len() <= NAME_BYTES_MAX
        && !name.contains(&b'/')
        && !name.contains(&0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_are_legal_and_the_seed_decides_them() {
        assert!(nasty_names().iter().all(|name| is_legal(name)));
        let draw = |seed| {
            let mut rng = Rng::with_seed(seed);
            (0..500).map(|_| random_name(&mut rng)).collect::<Vec<_>>()
        };
        assert_eq!(draw(7), draw(7));
        assert_ne!(draw(7), draw(8));
        assert!(draw(7).iter().all(|name| is_legal(name)));
    }
}
