//! Words of a command line of `sbatch`: its options, and the script.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Short options with a value (sbatch(1)).
const SHORT_WITH_VALUE: &[u8] = b"aAbBcCdDeFGiJLmMnNopqStwx";
/// Short options whose value, if any, stands in the same word.
const SHORT_WITH_REST: &[u8] = b"k";

/// Long options with a value (sbatch(1) of 22.05 to 24.11).
const LONG_WITH_VALUE: [&str; 89] = [
    "account",
    "acctg-freq",
    "array",
    "batch",
    "bb",
    "bbf",
    "begin",
    "chdir",
    "cluster",
    "cluster-constraint",
    "clusters",
    "comment",
    "constraint",
    "container",
    "container-id",
    "core-spec",
    "cores-per-socket",
    "cpu-freq",
    "cpus-per-gpu",
    "cpus-per-task",
    "deadline",
    "delay-boot",
    "dependency",
    "distribution",
    "error",
    "exclude",
    "export",
    "export-file",
    "extra",
    "extra-node-info",
    "gid",
    "gpu-bind",
    "gpu-freq",
    "gpus",
    "gpus-per-node",
    "gpus-per-socket",
    "gpus-per-task",
    "gres",
    "gres-flags",
    "hint",
    "input",
    "job-name",
    "kill-on-invalid-dep",
    "licenses",
    "mail-type",
    "mail-user",
    "mcs-label",
    "mem",
    "mem-bind",
    "mem-per-cpu",
    "mem-per-gpu",
    "mincpus",
    "network",
    "nodefile",
    "nodelist",
    "nodes",
    "ntasks",
    "ntasks-per-core",
    "ntasks-per-gpu",
    "ntasks-per-node",
    "ntasks-per-socket",
    "ntasks-per-tres",
    "open-mode",
    "output",
    "partition",
    "power",
    "prefer",
    "priority",
    "profile",
    "qos",
    "reservation",
    "segment",
    "signal",
    "sockets-per-node",
    "switches",
    "thread-spec",
    "threads-per-core",
    "time",
    "time-min",
    "tmp",
    "tres-bind",
    "tres-per-job",
    "tres-per-node",
    "tres-per-socket",
    "tres-per-task",
    "uid",
    "wait-all-nodes",
    "wckey",
    "wrap",
];
/// Long options without a value, or with one behind `=` only.
const LONG_ALONE: [&str; 28] = [
    "consolidate-segments",
    "contiguous",
    "exclusive",
    "get-user-env",
    "help",
    "hold",
    "ignore-pbs",
    "nice",
    "no-kill",
    "no-requeue",
    "oom-kill-step",
    "overcommit",
    "oversubscribe",
    "parsable",
    "propagate",
    "quiet",
    "reboot",
    "requeue",
    "resv-ports",
    "spread-job",
    "spread-segments",
    "stepmgr",
    "test-only",
    "usage",
    "use-min-nodes",
    "verbose",
    "version",
    "wait",
];

/// Option of `sbatch`, of which only few matter here.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct SbatchOption {
    /// Long name. Empty for short options that do not matter here.
    pub name: String,
    pub value: Option<OsString>,
    /// Words of the command line.
    pub words: Vec<OsString>,
}

/// A command line.
#[derive(Debug)]
pub(super) struct SbatchLine {
    pub options: Vec<SbatchOption>,
    /// The script and its arguments.
    pub rest: Vec<OsString>,
}

impl SbatchOption {
    /// Returns the words without the option `--quiet`, with which `sbatch` prints no number.
    pub fn spoken_words(&self) -> Vec<OsString> {
        let is_short = |word: &OsString| !word.as_bytes().starts_with(b"--");
        match self.words.split_first() {
            _ if self.name == "quiet" => Vec::new(),
            Some((first, rest)) if is_short(first) => {
                let first = without_quiet(first).into_iter();
                first.chain(rest.iter().cloned()).collect()
            }
            _ => self.words.clone(),
        }
    }
}

impl SbatchLine {
    /// Divides the words behind `sbatch`. `is_script` tells whether a word behind an option of an
    /// unknown plugin is the script; else it is the option's value.
    pub fn parse(words: &[OsString], is_script: &dyn Fn(&OsStr) -> bool) -> SbatchLine {
        let mut line = SbatchLine {
            options: Vec::new(),
            rest: Vec::new(),
        };
        let mut left = words.iter();
        while let Some(word) = left.next() {
            let next = left.as_slice().first();
            if word == "--" || !word.as_bytes().starts_with(b"-") || word == "-" {
                // The script follows, with its own arguments.
                line.rest.push(word.clone());
                line.rest.extend(left.cloned());
                break;
            }
            let (mut option, takes_next) = match word.as_bytes().strip_prefix(b"--") {
                Some(text) => long_option(text, next, is_script),
                None => short_options(&word.as_bytes()[1..]),
            };
            option.words.push(word.clone());
            if takes_next && let Some(value) = left.next() {
                option.words.push(value.clone());
                option.value = Some(value.clone());
            }
            line.options.push(option);
        }
        line
    }

    /// Returns the last value of an option, which is the one that counts.
    pub fn value(&self, name: &str) -> Option<&OsStr> {
        let mut found = self.options.iter().rev();
        found.find(|one| one.name == name)?.value.as_deref()
    }

    /// Returns the name of the script.
    pub fn script(&self) -> Option<&OsStr> {
        let skipped = usize::from(self.rest.first().is_some_and(|word| word == "--"));
        self.rest.get(skipped).map(OsString::as_os_str)
    }
}

/// Returns a long option, and whether the next word is its value.
fn long_option(
    text: &[u8],
    next: Option<&OsString>,
    is_script: &dyn Fn(&OsStr) -> bool,
) -> (SbatchOption, bool) {
    let mut parts = text.splitn(2, |byte| *byte == b'=');
    let written = String::from_utf8_lossy(parts.next().unwrap_or_default()).into_owned();
    let value = parts.next().map(|value| OsString::from_vec(value.to_vec()));
    let name = full_name(&written).map_or(written, str::to_owned);
    let takes_next = value.is_none()
        && if LONG_WITH_VALUE.contains(&name.as_str()) {
            true
        } else {
            // An option of a plugin (spank(7)): it may have a value or none.
            let is_known = LONG_ALONE.contains(&name.as_str());
            let is_value = |next: &OsString| !next.as_bytes().starts_with(b"-") && !is_script(next);
            !is_known && next.is_some_and(is_value)
        };
    let option = SbatchOption {
        name,
        value,
        words: Vec::new(),
    };
    (option, takes_next)
}

/// Returns the option that a name or its unique abbreviation stands for (getopt_long(3)).
fn full_name(written: &str) -> Option<&'static str> {
    let all = || LONG_WITH_VALUE.iter().chain(LONG_ALONE.iter()).copied();
    let exact = all().find(|name| *name == written);
    exact.or_else(|| {
        let mut found = all().filter(|name| name.starts_with(written));
        let first = found.next()?;
        found.next().is_none().then_some(first)
    })
}

/// Returns the option of a word of short options, and whether the next word is its value.
fn short_options(letters: &[u8]) -> (SbatchOption, bool) {
    let mut name = "";
    let mut value = None;
    let mut takes_next = false;
    for (at, letter) in letters.iter().enumerate() {
        match letter {
            b'W' => name = "wait",
            b'M' => name = "clusters",
            b'h' => name = "help",
            b'V' => name = "version",
            b'D' if name.is_empty() => name = "chdir",
            _ => {}
        }
        if SHORT_WITH_VALUE.contains(letter) {
            let rest = &letters[at + 1..];
            takes_next = rest.is_empty();
            value = (!takes_next).then(|| OsString::from_vec(rest.to_vec()));
            break;
        }
        if SHORT_WITH_REST.contains(letter) {
            break;
        }
    }
    let option = SbatchOption {
        name: name.to_owned(),
        value,
        words: Vec::new(),
    };
    (option, takes_next)
}

/// Returns a word of short options without `-Q`, or `None` if no other option is in it.
fn without_quiet(word: &OsStr) -> Option<OsString> {
    let mut kept = Vec::new();
    let mut letters = word.as_bytes().iter();
    while let Some(letter) = letters.next() {
        if *letter != b'Q' {
            kept.push(*letter);
        }
        if SHORT_WITH_VALUE.contains(letter) || SHORT_WITH_REST.contains(letter) {
            kept.extend(letters.by_ref());
        }
    }
    (kept != b"-").then(|| OsString::from_vec(kept))
}
