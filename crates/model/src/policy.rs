//! What is asked of a run, whatever its trees are: a plain value, the same for the command line,
//! for movers and for jobs in a file.

use crate::{Filter, FilterError, Keep, Level, RelPath};
use serde::{Deserialize, Serialize};
use std::fmt;

/// When copied files are made durable.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Durability {
    /// Once, at the end of the run (syncfs(2)); large files before they get their names.
    #[default]
    End,
    /// Each file before it gets its name, and all directories at the end.
    File,
    /// Left to the kernel: success then does not mean durable.
    None,
}

/// What becomes of the page cache.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Cache {
    /// Copied data stays cached.
    #[default]
    Keep,
    /// Copied data is written out and leaves the cache; what was cached before stays.
    Drop,
    /// Large files pass the cache by (O_DIRECT); the rest is dropped.
    Direct,
}

/// How many entries may be deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum DeleteLimit {
    /// This many entries.
    Count(u64),
    /// This share of the entries of the replica, in percent.
    Percent(u64),
}

/// What is kept, compared, taken and deleted, and how sure it is then.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields, rename_all = "kebab-case")]
pub struct Policy {
    /// What is kept.
    pub keep: Keep,
    /// How closely entries are compared.
    pub level: Level,
    /// What was written is read back and compared.
    pub read_back: Option<Level>,
    /// Which entries are taken.
    pub filter: Filter,
    /// Other file systems mounted below the source are left out.
    pub one_file_system: bool,
    /// Entries that the source lacks are removed.
    pub delete: bool,
    /// Excluded entries are removed, too.
    pub delete_excluded: bool,
    /// Entries are removed from a replica that looks like another tree, too.
    pub delete_unlike: bool,
    /// How many entries may be removed.
    pub delete_limit: Option<DeleteLimit>,
    /// What is removed goes into a folder in the root of the replica, and is kept there.
    pub trash: bool,
    /// What must be there on both sides, or nothing is begun.
    pub required: Vec<RelPath>,
    /// What becomes of the page cache.
    pub cache: Cache,
    /// When copied files are made durable.
    pub durability: Durability,
}

/// Why a policy cannot be meant.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PolicyError {
    /// No size lies between the two.
    Sizes {
        /// The least size, in bytes.
        min: u64,
        /// The greatest size, in bytes.
        max: u64,
    },
    /// More than all.
    Percent(u64),
    /// Reading back metadata is what comparing does.
    ReadBack,
    /// Other programs disagree about what a rule matches, and entries would be deleted by it.
    Ambiguous(FilterError),
}

/// What the fields of a policy are called where it was written, on a command line or in a file.
#[derive(Debug, Clone, Copy)]
pub struct PolicyNames {
    /// The least size of files.
    pub min_size: &'static str,
    /// The greatest size of files.
    pub max_size: &'static str,
    /// How many entries may be removed.
    pub max_delete: &'static str,
    /// What was written is read back.
    pub read_back: &'static str,
}

impl PolicyNames {
    /// The options of the command line.
    pub const OPTIONS: PolicyNames = PolicyNames {
        min_size: "--min-size",
        max_size: "--max-size",
        max_delete: "--max-delete",
        read_back: "--verify",
    };
}

impl PolicyError {
    /// What is wrong, in the words of where the policy was written.
    pub fn told(&self, names: &PolicyNames) -> String {
        match self {
            PolicyError::Sizes { min, max } => format!(
                "{} {min} is more than {} {max}: no file would be taken",
                names.min_size, names.max_size
            ),
            PolicyError::Percent(percent) => {
                format!("{} {percent}%: at most 100%", names.max_delete)
            }
            PolicyError::ReadBack => format!(
                "{}: content and media are read back, metadata alone is not",
                names.read_back
            ),
            PolicyError::Ambiguous(error) => error.to_string(),
        }
    }
}

/// In the words of the command line.
impl fmt::Display for PolicyError {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.told(&PolicyNames::OPTIONS))
    }
}

impl std::error::Error for PolicyError {}

impl Policy {
    /// Refuses what cannot be meant, whoever wrote it.
    ///
    /// # Errors
    /// Two of its fields contradict each other, or one is out of its bounds.
    pub fn check(&self) -> Result<(), PolicyError> {
        match (
            self.filter.size_min,
            self.filter.size_max,
            self.delete_limit,
            self.read_back,
        ) {
            (Some(min), Some(max), ..) if min > max => Err(PolicyError::Sizes { min, max }),
            (_, _, Some(DeleteLimit::Percent(percent @ 101..)), _) => {
                Err(PolicyError::Percent(percent))
            }
            (.., Some(Level::Meta)) => Err(PolicyError::ReadBack),
            _ => Ok(()),
        }
    }

    /// Refuses rules that must not decide what is deleted. A comparison need not ask.
    ///
    /// # Errors
    /// Entries are deleted, and other programs disagree about what one of the rules matches.
    pub fn check_deletes(&self) -> Result<(), PolicyError> {
        match self.filter.ambiguity().filter(|_| self.delete) {
            Some(error) => Err(PolicyError::Ambiguous(error)),
            None => Ok(()),
        }
    }

    /// What a mover is asked to do by it: it neither counts what is removed nor decides whether the
    /// trees are the right ones.
    #[must_use]
    pub fn of_mover(&self) -> Policy {
        Policy {
            delete_unlike: false,
            delete_limit: None,
            required: Vec::new(),
            ..self.clone()
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rule;

    #[test]
    fn a_policy_goes_over_a_wire_and_comes_back() {
        let rules = vec![
            Rule::new(true, "*.c").unwrap(),
            Rule::new(false, "a/**").unwrap(),
        ];
        let policy = Policy {
            level: Level::Content,
            filter: Filter {
                rules,
                size_min: Some(1),
                size_max: Some(9),
            },
            delete: true,
            delete_limit: Some(DeleteLimit::Percent(10)),
            required: vec![RelPath::parse(b"here").unwrap()],
            cache: Cache::Direct,
            ..Policy::default()
        };
        let there = postcard::to_stdvec(&policy).unwrap();
        assert_eq!(postcard::from_bytes::<Policy>(&there).unwrap(), policy);
        let text = serde_json::to_string(&policy).unwrap();
        assert_eq!(serde_json::from_str::<Policy>(&text).unwrap(), policy);
    }

    #[test]
    fn a_rule_that_nobody_can_understand_is_refused_with_its_text() {
        let mut policy = serde_json::to_value(Policy::default()).unwrap();
        policy["filter"]["rules"] = serde_json::json!(["- a[", "+ b"]);
        let error = serde_json::from_value::<Policy>(policy)
            .unwrap_err()
            .to_string();
        assert!(error.contains("a["), "{error}");
        let unknown = serde_json::from_str::<Policy>(r#"{"keeps": 1}"#)
            .unwrap_err()
            .to_string();
        assert!(unknown.contains("keeps"), "{unknown}");
    }

    #[test]
    fn what_is_wrong_is_told_by_the_names_that_were_written() {
        const KEYS: PolicyNames = PolicyNames {
            min_size: "min_size",
            max_size: "max_size",
            max_delete: "max_delete",
            read_back: "read_back",
        };
        let sizes = PolicyError::Sizes { min: 6, max: 5 };
        for (error, option, key) in [
            (
                &sizes,
                "--min-size 6 is more than --max-size 5",
                "min_size 6 is more than max_size 5",
            ),
            (
                &PolicyError::Percent(101),
                "--max-delete 101%: ",
                "max_delete 101%: ",
            ),
            (&PolicyError::ReadBack, "--verify: ", "read_back: "),
        ] {
            assert!(error.to_string().starts_with(option), "{error}");
            assert!(error.told(&KEYS).starts_with(key), "{error}");
        }
    }

    #[test]
    fn what_contradicts_itself_is_refused() {
        let sizes = |size_min, size_max| Policy {
            filter: Filter {
                size_min,
                size_max,
                ..Filter::default()
            },
            ..Policy::default()
        };
        let limit = |percent| Policy {
            delete_limit: Some(DeleteLimit::Percent(percent)),
            ..Policy::default()
        };
        for (policy, holds) in [
            (Policy::default(), true),
            (sizes(Some(5), Some(5)), true),
            (sizes(Some(6), Some(5)), false),
            (sizes(None, Some(5)), true),
            (limit(100), true),
            (limit(101), false),
            (
                Policy {
                    read_back: Some(Level::Meta),
                    ..Policy::default()
                },
                false,
            ),
            (
                Policy {
                    read_back: Some(Level::Media),
                    ..Policy::default()
                },
                true,
            ),
        ] {
            assert_eq!(policy.check().is_ok(), holds, "{policy:?}");
        }
    }
}
