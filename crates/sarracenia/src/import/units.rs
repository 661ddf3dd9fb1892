//! Values of `sr3` in units of ours: times, sizes, yes and no.

/// Whether an option is on; without a value it is.
pub(crate) fn is_on(value: &str) -> Option<bool> {
    match value.to_ascii_lowercase().as_str() {
        "" | "true" | "yes" | "on" | "1" => Some(true),
        "false" | "no" | "off" | "0" | "none" => Some(false),
        _ => None,
    }
}

/// A time in milliseconds: a number of seconds, also a fraction, or one with s, m, h, d or w.
pub(crate) fn milliseconds(value: &str) -> Option<u64> {
    const UNITS: [(char, u64); 5] = [
        ('s', 1000),
        ('m', 60_000),
        ('h', 3_600_000),
        ('d', 86_400_000),
        ('w', 604_800_000),
    ];
    let last = value.chars().last()?.to_ascii_lowercase();
    let unit = UNITS.iter().find(|(letter, _)| *letter == last);
    let (number, scale) = match unit {
        Some((_, scale)) => (&value[..value.len() - 1], *scale),
        None => (value, 1000),
    };
    let (whole, part) = number.split_once('.').unwrap_or((number, "0"));
    let digits = |text: &str| text.bytes().all(|byte| byte.is_ascii_digit());
    if !digits(whole) || !digits(part) || part.len() > 6 {
        return None;
    }
    let part_scale = 10_u64.pow(u32::try_from(part.len()).ok()?);
    let parts = part.parse::<u64>().ok()?.checked_mul(scale)? / part_scale;
    whole
        .parse::<u64>()
        .ok()?
        .checked_mul(scale)?
        .checked_add(parts)
}

/// A time in milliseconds as a job has it; none for no time at all.
pub(crate) fn shown(millis: u64) -> Option<String> {
    match millis {
        0 => None,
        millis if millis.is_multiple_of(1000) => Some(format!("{}s", millis / 1000)),
        millis => Some(format!("{millis}ms")),
    }
}

/// A size in bytes: powers of a thousand, or of 1024 where the unit ends with `i` or `b`
/// (sr3_options(7)); none for no limit.
pub(crate) fn bytes(value: &str) -> Option<u64> {
    let lower = value.to_ascii_lowercase();
    let base: u64 = if lower.ends_with(['i', 'b']) {
        1024
    } else {
        1000
    };
    let digits = lower.find(|c: char| !c.is_ascii_digit());
    let (number, unit) = lower.split_at(digits.unwrap_or(lower.len()));
    let power = match unit.trim_end_matches(['i', 'b']) {
        "" => 0,
        "k" => 1,
        "m" => 2,
        "g" => 3,
        "t" => 4,
        _ => return None,
    };
    let bytes = number.parse::<u64>().ok()?.checked_mul(base.pow(power))?;
    // TOML has no larger numbers, and no file is so large.
    (1..=i64::MAX as u64).contains(&bytes).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_and_sizes_are_read_as_sr3_does() {
        for (text, expected) in [
            ("5", Some("5s")),
            ("0.5", Some("500ms")),
            ("5m", Some("300s")),
            ("1.5h", Some("5400s")),
            ("0", None),
            ("-1", None),
            ("x", None),
            ("é", None),
            ("99999999999999999999d", None),
        ] {
            let time = milliseconds(text).and_then(shown);
            assert_eq!(time.as_deref(), expected, "{text}");
        }
        for (text, expected) in [
            ("10", Some(10)),
            ("4k", Some(4000)),
            ("4Ki", Some(4096)),
            ("2mb", Some(2 << 20)),
            ("0", None),
            ("1x", None),
            ("99999999999999999999", None),
            ("9223372036854775807", Some(i64::MAX as u64)),
            ("9223372036854775808", None),
            ("99999999999g", None),
        ] {
            assert_eq!(bytes(text), expected, "{text}");
        }
        assert_eq!(
            ["", "Yes", "off", "maybe"].map(is_on),
            [Some(true), Some(true), Some(false), None]
        );
    }
}
