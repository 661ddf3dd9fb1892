//! Renderer of task files: each file has many texts.

use driftless_taskfile::{Cleanup, DataPath, ParameterRange, TaskFile, WorkloadManager};
use fastrand::Rng;
use std::os::unix::ffi::OsStrExt;

const KEYWORDS: [&[u8]; 12] = [
    b"WLM",
    b"DATA",
    b"EXECUTE",
    b"RESULTS",
    b"CLEANUP",
    b"WLM_SYSTEM",
    b"OPTIONS",
    b"TRANSFER",
    b"DO",
    b"COLLECT",
    b"PURGEALL",
    b"KEEP",
];

/// Text of a file that is not complete.
struct Renderer<'r> {
    text: Vec<u8>,
    rng: &'r mut Rng,
}

/// Returns a text of the file. `pattern` is the text of its pattern.
pub fn render(file: &TaskFile, pattern: &[u8], rng: &mut Rng) -> Vec<u8> {
    let mut out = Renderer {
        text: Vec::new(),
        rng,
    };
    if out.rng.u8(..8) == 0 {
        out.text.extend_from_slice("\u{feff}".as_bytes());
    }
    let mut sections = [0, 1, 2, 3, 4];
    out.rng.shuffle(&mut sections);
    for section in sections {
        match section {
            0 => out.wlm(file),
            1 => out.data(&file.data),
            2 => out.execute(file),
            3 if file.results.is_some() => out.results(pattern),
            3 => {}
            _ => out.cleanup(file.cleanup),
        }
    }
    out.blanks();
    out.text
}

impl Renderer<'_> {
    /// Writes a blank, blanks and comments, or nothing.
    fn blanks(&mut self) {
        for _ in 0..self.rng.usize(..3) {
            let blanks = [
                " ",
                "\t",
                "\n",
                "\r\n",
                " # a; { \" comment }\n",
                "\x0b\x0c",
            ];
            let blank = blanks[self.rng.usize(..blanks.len())];
            self.text.extend_from_slice(blank.as_bytes());
        }
    }

    fn word(&mut self, word: &str) {
        let upper = self.rng.bool();
        let letters = word.chars().map(|letter| match upper || self.rng.bool() {
            true => letter.to_ascii_uppercase(),
            false => letter.to_ascii_lowercase(),
        });
        let word: String = letters.collect();
        self.text.extend_from_slice(word.as_bytes());
    }

    fn sign(&mut self, sign: char) {
        self.blanks();
        self.text.push(sign as u8);
        self.blanks();
    }

    fn number(&mut self, number: impl ToString) {
        let zeros = "0".repeat(self.rng.usize(..3));
        self.text.extend_from_slice(zeros.as_bytes());
        self.text.extend_from_slice(number.to_string().as_bytes());
    }

    fn start(&mut self, section: &str) {
        self.blanks();
        self.word(section);
        self.sign('{');
    }

    /// Writes a value behind a blank, in quotes if it needs them.
    fn value(&mut self, value: &[u8]) {
        self.text.push(b' ');
        self.blanks();
        let is_special = |byte: &u8| byte.is_ascii_whitespace() || b"\x0b;{}\"*?[".contains(byte);
        let is_keyword = KEYWORDS.iter().any(|one| one.eq_ignore_ascii_case(value));
        let is_parms = value.to_ascii_lowercase().starts_with(b"parms");
        let starts = value.first().is_none_or(|byte| b"#=".contains(byte));
        if value.iter().any(is_special) || is_keyword || is_parms || starts || self.rng.bool() {
            self.quoted(value);
        } else {
            self.text.extend_from_slice(value);
        }
    }

    fn quoted(&mut self, value: &[u8]) {
        self.text.push(b'"');
        for byte in value {
            if b"\"\\".contains(byte) {
                self.text.push(b'\\');
            }
            self.text.push(*byte);
        }
        self.text.push(b'"');
    }

    fn wlm(&mut self, file: &TaskFile) {
        self.start("wlm");
        let is_first = self.rng.bool();
        if is_first {
            self.options(&file.options);
        }
        self.word("wlm_system");
        self.sign('=');
        let names = match file.system {
            WorkloadManager::GridEngine => &["SGE", "GE", "UGE"][..],
            WorkloadManager::Slurm => &["SLURM"],
            WorkloadManager::Pbs => &["PBS", "PBSPRO", "OPENPBS"],
            WorkloadManager::Torque => &["TORQUE"],
        };
        let name = names[self.rng.usize(..names.len())];
        self.word(name);
        self.sign(';');
        if !is_first {
            self.options(&file.options);
        }
        self.sign('}');
    }

    fn options(&mut self, options: &[String]) {
        if !options.is_empty() || self.rng.bool() {
            self.word("options");
            self.sign('=');
            let joined = shell_words::join(options);
            self.quoted(joined.as_bytes());
            self.sign(';');
        }
    }

    fn data(&mut self, data: &[DataPath]) {
        self.start("data");
        for one in data {
            self.word("transfer");
            if one.is_glob {
                self.text.push(b' ');
                self.blanks();
                self.text.extend_from_slice(one.path.as_os_str().as_bytes());
            } else {
                self.value(one.path.as_os_str().as_bytes());
            }
            self.sign(';');
        }
        self.sign('}');
    }

    fn execute(&mut self, file: &TaskFile) {
        self.start("execute");
        self.word("do");
        self.value(file.script.as_os_str().as_bytes());
        for argument in &file.arguments {
            self.value(argument.as_bytes());
        }
        if let Some(range) = &file.parameters {
            self.text.push(b' ');
            self.range(range);
        }
        self.sign(';');
        self.sign('}');
    }

    fn range(&mut self, range: &ParameterRange) {
        self.word("parms");
        self.sign('=');
        self.sign('[');
        self.number(range.start);
        self.sign(':');
        self.number(range.stop);
        if range.step.get() > 1 || self.rng.bool() {
            self.sign(';');
            self.number(range.step);
        }
        self.sign(']');
        if let Some(tasks) = range.tasks_at_once_max {
            self.sign('%');
            self.number(tasks);
        }
    }

    fn results(&mut self, pattern: &[u8]) {
        self.start("results");
        self.word("collect");
        self.text.push(b' ');
        self.word("to");
        self.value(pattern);
        self.sign(';');
        self.sign('}');
    }

    fn cleanup(&mut self, cleanup: Cleanup) {
        if cleanup == Cleanup::PurgeAll && self.rng.bool() {
            return;
        }
        self.start("cleanup");
        match cleanup {
            Cleanup::PurgeAll => self.word("purgeall"),
            Cleanup::Keep => self.word("keep"),
            Cleanup::KeepFor(time) => {
                self.word("keep");
                self.text.push(b' ');
                let units = [
                    ("w", 604_800),
                    ("d", 86_400),
                    ("h", 3600),
                    ("m", 60),
                    ("s", 1),
                ];
                let exact = units.iter().filter(|(_, unit)| time.as_secs() % unit == 0);
                let exact: Vec<_> = exact.collect();
                let (unit, seconds) = exact[self.rng.usize(..exact.len())];
                self.number(time.as_secs() / seconds);
                self.word(unit);
            }
        }
        self.sign(';');
        self.sign('}');
    }
}
