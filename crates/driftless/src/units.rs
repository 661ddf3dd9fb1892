//! Numbers with units as a user writes them.

use driftless_engine::Jobs;
use driftless_reconcile::DeleteLimit;

/// Bytes: a number with k, M, G, T or P (powers of 1024), in either case, perhaps followed by B or iB.
pub fn bytes(text: &str) -> Result<u64, String> {
    let digits = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(digits);
    let lower = unit.to_ascii_lowercase();
    let letter = lower.strip_suffix("ib").or_else(|| lower.strip_suffix('b')).unwrap_or(&lower);
    let shift = match letter {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        "t" => 40,
        "p" => 50,
        _ => return Err(format!("unknown unit \"{unit}\" (k, M, G, T and P are known)")),
    };
    let number: u64 = number.parse().map_err(|_| "a number is expected, such as 10M".to_string())?;
    number.checked_mul(1 << shift).ok_or_else(|| "the number is too large".into())
}

/// A rate: as bytes, and not zero.
pub fn rate(text: &str) -> Result<u64, String> {
    match bytes(text)? {
        0 => Err("a limit of zero would never end".into()),
        rate => Ok(rate),
    }
}

/// A number of requests a second, and not zero.
pub fn requests(text: &str) -> Result<u64, String> {
    match text.parse() {
        Ok(number) if number > 0 => Ok(number),
        _ => Err("a number above zero is expected".into()),
    }
}

/// `auto` or a number of threads.
pub fn jobs(text: &str) -> Result<Jobs, String> {
    const THREADS_MAX: usize = 1024;
    if text == "auto" {
        return Ok(Jobs::Auto);
    }
    match text.parse() {
        Ok(threads) if (1..=THREADS_MAX).contains(&threads) => Ok(Jobs::Fixed(threads)),
        _ => Err(format!("\"auto\" or a number from 1 to {THREADS_MAX} is expected")),
    }
}

/// `N` entries or `P%` of them.
pub fn delete_limit(text: &str) -> Result<DeleteLimit, String> {
    let wrong = || "a number of entries, such as 1000, or a share from 0% to 100% is expected".to_string();
    match text.strip_suffix('%') {
        Some(percent) => percent.parse().ok().filter(|p| *p <= 100).map(DeleteLimit::Percent).ok_or_else(wrong),
        None => text.parse().map(DeleteLimit::Count).map_err(|_| wrong()),
    }
}

/// Bytes for a person: three digits and a unit.
pub fn show_bytes(bytes: u64) -> String {
    indicatif::BinaryBytes(bytes).to_string()
}

/// A count for a person: digits in groups of three.
pub fn show_count(count: u64) -> String {
    indicatif::HumanCount(count).to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_read_in_any_usual_form() {
        for (text, expected) in [("0", 0), ("10", 10), ("10k", 10240), ("4M", 4 << 20), ("1GiB", 1 << 30), ("2tb", 2 << 40)] {
            assert_eq!(bytes(text), Ok(expected), "{text}");
        }
        for bad in ["", "k", "1x", "-1", "1.5M", "99999999999P"] {
            assert!(bytes(bad).is_err(), "{bad}");
        }
        assert!(rate("0").is_err() && jobs("0").is_err() && jobs("2000").is_err() && jobs("8") == Ok(Jobs::Fixed(8)));
        assert_eq!(delete_limit("10%"), Ok(DeleteLimit::Percent(10)));
        assert!(delete_limit("101%").is_err() && delete_limit("x").is_err());
    }
}
