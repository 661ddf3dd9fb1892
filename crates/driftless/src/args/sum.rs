//! Arguments of `driftless sum`.

use clap::{Args, ValueEnum};
use driftless_pool::Concurrency;
use driftless_verify::{Algorithm, is_piece_size};
use std::ops::Range;
use std::path::PathBuf;

#[derive(Debug, Args)]
pub struct SumArgs {
    /// Files, and directories with all regular files below them
    ///
    /// Symbolic links are followed in the arguments, and not below a directory.
    #[arg(value_name = "PATH", required_unless_present_any = ["from_stdin", "check", "check_tree"])]
    pub paths: Vec<PathBuf>,

    /// Hash function; BLAKE3 by default
    ///
    /// With --check, NAME applies to lines that name no function. By default, the length of their
    /// sums selects it.
    #[arg(short, long, value_name = "NAME", value_enum, help_heading = "Hashing")]
    pub algorithm: Option<AlgorithmArg>,
    /// Hash only the bytes from START up to END, which is excluded
    ///
    /// Examples: 0-4096, 1M-2M, 1G- (to the end).
    #[arg(long, value_name = "START-END", value_parser = range, conflicts_with_all = ["tree", "manifest", "check", "check_tree"], help_heading = "Hashing")]
    pub range: Option<Range<u64>>,
    /// Read the paths from standard input, one a line
    ///
    /// A line "START-END", a tab and a path selects these bytes.
    #[arg(long, conflicts_with_all = ["paths", "manifest", "check", "check_tree"], help_heading = "Hashing")]
    pub from_stdin: bool,
    /// Lines of --from-stdin end with NUL instead of newline
    #[arg(long, requires = "from_stdin", help_heading = "Hashing")]
    pub from0: bool,

    /// Verify the sums listed in FILE; "-" is standard input
    ///
    /// The list may be of sha256sum, md5sum, b3sum or this command.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["paths", "tree", "manifest", "check_tree"], help_heading = "Verifying")]
    pub check: Option<PathBuf>,
    /// Write the hash tree of each file to FILE, for --check-tree
    #[arg(long, value_name = "FILE", conflicts_with_all = ["manifest", "check_tree"], help_heading = "Verifying")]
    pub tree: Option<PathBuf>,
    /// Size of a leaf of the hash trees, a power of two [default: 1M]
    #[arg(long, value_name = "SIZE", value_parser = leaf_size, requires = "tree", help_heading = "Verifying")]
    pub leaf_size: Option<u64>,
    /// Print the bytes that differ from the hash trees in FILE
    ///
    /// "-" is standard input.
    #[arg(long, value_name = "FILE", conflicts_with_all = ["paths", "algorithm"], help_heading = "Verifying")]
    pub check_tree: Option<PathBuf>,
    /// Print a manifest of the directory PATH
    ///
    /// The manifest has names, metadata and content. The hash in its last line covers all of them.
    #[arg(long, conflicts_with = "algorithm", help_heading = "Verifying")]
    pub manifest: bool,

    /// Number of concurrent requests; "auto" adapts it
    #[arg(short = 'j', long, value_name = "auto|N", default_value = "auto", value_parser = crate::units::jobs, help_heading = "Running")]
    pub jobs: Concurrency,
    /// Print one JSON object a line
    #[arg(long, help_heading = "Output")]
    pub json: bool,
    /// Print failures only, with --check and --check-tree
    #[arg(short, long, help_heading = "Output")]
    pub quiet: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, ValueEnum)]
pub enum AlgorithmArg {
    /// BLAKE3, as b3sum
    Blake3,
    /// SHA-256, as sha256sum
    Sha256,
    /// SHA-512, as sha512sum
    Sha512,
    /// MD5, as md5sum
    Md5,
    /// XXH3 with 128 bits, as xxh128sum: against accidents only
    Xxh3,
}

impl From<AlgorithmArg> for Algorithm {
    fn from(arg: AlgorithmArg) -> Self {
        match arg {
            AlgorithmArg::Blake3 => Algorithm::Blake3,
            AlgorithmArg::Sha256 => Algorithm::Sha256,
            AlgorithmArg::Sha512 => Algorithm::Sha512,
            AlgorithmArg::Md5 => Algorithm::Md5,
            AlgorithmArg::Xxh3 => Algorithm::Xxh3,
        }
    }
}

/// Parses `START-END`. Without END, the range goes up to `u64::MAX`, the end of the file.
pub fn range(text: &str) -> Result<Range<u64>, String> {
    let (start, end) = text
        .split_once('-')
        .ok_or("START-END is expected, such as 0-4096")?;
    let start = crate::units::bytes(start)?;
    let end = match end {
        "" => u64::MAX,
        end => match crate::units::bytes(end)? {
            u64::MAX => {
                return Err(format!(
                    "no file is so long; write {start}- for up to the end"
                ));
            }
            end => end,
        },
    };
    if start > end {
        Err("the end lies before the start".into())
    } else {
        Ok(start..end)
    }
}

fn leaf_size(text: &str) -> Result<u64, String> {
    crate::units::bytes(text)
        .ok()
        .filter(|bytes| is_piece_size(*bytes))
        .ok_or("a power of two from 1024 on is expected".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_have_a_start_and_perhaps_an_end() {
        for (text, expected) in [
            ("0-10", 0..10),
            ("1k-2k", 1024..2048),
            ("5-", 5..u64::MAX),
            ("7-7", 7..7),
        ] {
            assert_eq!(range(text), Ok(expected), "{text}");
        }
        for bad in [
            "",
            "5",
            "-5",
            "5-4",
            "a-b",
            "1-2-3",
            "0-18446744073709551615",
        ] {
            assert!(range(bad).is_err(), "{bad}");
        }
        assert!(
            leaf_size("1000").is_err()
                && leaf_size("512").is_err()
                && leaf_size("64k") == Ok(65_536)
        );
    }
}
