//! Where the targets come from: arguments, standard input, a list of sums, a file of hash trees.
//! Read as they are needed.

use super::dialect::{algorithm_of, named, path_of};
use crate::args::{SumArgs, range};
use crate::command::lists::{form_of, not_read};
use driftless_lock::Mutex;
use driftless_model::{ListError, ListForm, cause, quote};
use driftless_verify::{
    Algorithm, BadLine, BadTarget, Expected, Lines, Target, Targets, TreeReader, parse_line,
};
use std::fmt::Display;
use std::fs::File;
use std::io::{self, BufRead, BufReader};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

type Input = Box<dyn BufRead + Send>;

/// An open source of targets.
pub struct Source {
    /// What it is called in messages.
    name: String,
    input: Mutex<Option<Input>>,
    broken: AtomicBool,
}

impl Source {
    /// Opens what the arguments name.
    pub fn open(args: &SumArgs) -> Result<Self, String> {
        let path = args
            .check
            .as_deref()
            .or(args.check_tree.as_deref())
            .or(args.from_stdin.then_some(Path::new("-")));
        let name = match path {
            Some(path) if path == Path::new("-") => "standard input".into(),
            path => quote(path.unwrap_or(Path::new(""))),
        };
        let input = path
            .map(|path| open(path).map_err(|error| not_read(path, "open", &error)))
            .transpose()?;
        Ok(Source {
            name,
            input: Mutex::new(input),
            broken: AtomicBool::new(false),
        })
    }

    /// Whether it could not be read to its end.
    pub fn is_broken(&self) -> bool {
        self.broken.load(Relaxed)
    }

    /// The targets, once.
    pub fn targets<'t>(&'t self, args: &'t SumArgs) -> Targets<'t> {
        let algorithm = args.algorithm.map(Algorithm::from);
        let plain = Target {
            path: PathBuf::new(),
            range: args.range.clone(),
            algorithm: algorithm.unwrap_or_default(),
            leaf_bytes: args.leaf_bytes(),
            expected: None,
        };
        let input = self.input.lock().take();
        match input {
            None => Box::new(args.paths.iter().map(move |path| {
                Ok(Target {
                    path: path.clone(),
                    ..plain.clone()
                })
            })),
            Some(input) if args.check.is_some() => self.listed(input, algorithm),
            Some(input) if args.check_tree.is_some() => self.trees(input),
            Some(input) => self.batch(input, if args.from0 { 0 } else { b'\n' }, plain),
        }
    }

    /// One target for each line that `target` finds one in.
    fn lines<'t>(
        &'t self,
        mut lines: Lines<Input>,
        form: ListForm,
        target: impl Fn(&[u8]) -> Result<Option<Target>, BadLine> + Send + 't,
    ) -> Targets<'t> {
        let located =
            move |number: u64, why: &dyn Display| self.bad(format!("line {number}: {why}"));
        Box::new(std::iter::from_fn(move || {
            loop {
                if self.is_broken() {
                    return None;
                }
                match lines.read() {
                    Ok(None) => return None,
                    Ok(Some(line)) => match target(form.line(lines.number(), &line)) {
                        Ok(None) => {}
                        Ok(Some(target)) => return Some(Ok(target)),
                        Err(bad) => return Some(Err(located(lines.number(), &bad))),
                    },
                    Err(error) => {
                        self.broken.store(true, Relaxed);
                        return Some(Err(located(
                            lines.number(),
                            &format!("cannot read on: {}", cause(&error)),
                        )));
                    }
                }
            }
        }))
    }

    /// Returns no target, and says why the list cannot be read at all.
    fn unreadable(&self, why: &str) -> Targets<'_> {
        self.broken.store(true, Relaxed);
        Box::new(std::iter::once(Err(self.bad(why.to_owned()))))
    }

    fn bad(&self, why: String) -> BadTarget {
        BadTarget {
            list: self.name.clone(),
            why,
        }
    }

    /// Lines of a list of sums.
    fn listed(&self, mut input: Input, stated: Option<Algorithm>) -> Targets<'_> {
        let form = match form_of(&mut input, b'\n', named) {
            Ok(form) => form,
            // Of what begins with NUL no line is a sum, which is told when it is read.
            Err(ListError::EndsWithNul) if starts_with_nul(&mut input) => ListForm::default(),
            Err(ListError::EndsWithNul) => {
                return self.unreadable("lines end with NUL; make the list without -z (--zero)");
            }
            Err(error) => return self.unreadable(&error.to_string()),
        };
        // What cannot be read is told when it is read again.
        let first = input.fill_buf().unwrap_or_default();
        let found_out = if stated.is_some() {
            None
        } else {
            algorithm_of(form, first)
        };
        if let Some(algorithm) = found_out {
            eprintln!(
                "driftless: {}: the first sums that were tried are {}, so all are taken to be",
                self.name,
                algorithm.word()
            );
        }
        self.lines(Lines::new(input), form, move |line| {
            let Some(line) = parse_line(line)? else {
                return Ok(None);
            };
            let bytes = line.digest.as_bytes().len();
            let unnamed = found_out
                .filter(|one| one.digest_bytes() == bytes)
                .or(Algorithm::guess(bytes));
            let algorithm = line
                .algorithm
                .or(stated)
                .or(unnamed)
                .ok_or(BadLine::Length)?;
            if algorithm.digest_bytes() != bytes {
                return Err(BadLine::Length);
            }
            let (path, expected) = (path_of(line.name), Some(Expected::Digest(line.digest)));
            Ok(Some(Target {
                path,
                range: line.range,
                algorithm,
                leaf_bytes: None,
                expected,
            }))
        })
    }

    /// Paths, or ranges and paths.
    fn batch<'t>(&'t self, mut input: Input, end: u8, plain: Target) -> Targets<'t> {
        let named = |line: &[u8]| Some(path_of(split_range(line.to_vec()).1));
        let form = match form_of(&mut input, end, named) {
            Ok(form) => form,
            Err(error) => return self.unreadable(&error.to_string()),
        };
        self.lines(Lines::ending_with(end, input), form, move |line| {
            if line.is_empty() {
                return Ok(None);
            }
            let (part, path) = split_range(line.to_vec());
            Ok(Some(Target {
                path: path_of(path),
                range: part.or(plain.range.clone()),
                ..plain.clone()
            }))
        })
    }

    /// Files of a tree file. What is behind a broken line cannot be known.
    fn trees(&self, input: Input) -> Targets<'_> {
        let mut input = Some(input);
        let mut reader = None;
        Box::new(std::iter::from_fn(move || {
            if let Some(input) = input.take() {
                reader = Some(TreeReader::new(input));
            }
            let next = match reader.take()? {
                Ok(mut open) => {
                    let next = open.next_tree();
                    reader = Some(Ok(open));
                    next
                }
                Err(error) => Err(error),
            };
            match next.transpose()? {
                Ok((name, tree)) => Some(Ok(Target {
                    path: path_of(name),
                    range: None,
                    algorithm: Algorithm::Blake3,
                    leaf_bytes: Some(tree.leaf_bytes()),
                    expected: Some(Expected::Tree(tree)),
                })),
                Err(error) => {
                    reader = None;
                    self.broken.store(true, Relaxed);
                    Some(Err(self.bad(error.to_string())))
                }
            }
        }))
    }
}

fn starts_with_nul(input: &mut Input) -> bool {
    input.fill_buf().is_ok_and(|first| first.starts_with(&[0]))
}

/// The range before the first tab, if there is one.
fn split_range(line: Vec<u8>) -> (Option<std::ops::Range<u64>>, Vec<u8>) {
    let Some(tab) = line.iter().position(|byte| *byte == b'\t') else {
        return (None, line);
    };
    match std::str::from_utf8(&line[..tab])
        .ok()
        .and_then(|text| range(text).ok())
    {
        Some(part) => (Some(part), line[tab + 1..].to_vec()),
        None => (None, line),
    }
}

/// The user's own list; "-" is standard input. It is no part of a replicated tree.
#[allow(clippy::disallowed_methods)]
fn open(path: &Path) -> io::Result<Input> {
    if path == Path::new("-") {
        return Ok(Box::new(BufReader::new(io::stdin())));
    }
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(io::Error::from(io::ErrorKind::IsADirectory));
    }
    Ok(Box::new(BufReader::with_capacity(256 * 1024, file)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_range_before_a_tab_is_one() {
        let table: [(&[u8], Option<std::ops::Range<u64>>, &[u8]); 4] = [
            (b"0-5\ta\tb", Some(0..5), b"a\tb"),
            (b"a\tb", None, b"a\tb"),
            (b"0-5 a", None, b"0-5 a"),
            (b"./0-5\ta", None, b"./0-5\ta"),
        ];
        for (line, part, path) in table {
            assert_eq!(split_range(line.to_vec()), (part, path.to_vec()));
        }
    }
}
