//! What `driftless sum` prints: lists, verdicts, a manifest; as text or JSON. Here, too, hash trees
//! are written.
//!
//! The output is the product, so what cannot be written ends the run.

use crate::args::SumArgs;
use crate::exit::Exit;
use crate::output::json::{bytes_text, line};
use crate::output::product::{Form, Product, id_at};
use crate::units::{show_count, show_counted};
use driftless_lock::Mutex;
use driftless_model::event::{Checked, SumEvent, SumSummary};
use driftless_model::{Entry, Kind, cause, escape};
use driftless_verify::{
    Digest, Expected, Found, HashTree, Manifest, Sum, SumMonitor, Target, TreeWriter, What,
    push_line,
};
use std::io::{self, BufWriter, Stdout, Write};
use std::ops::Range;
use std::path::Path;
use std::sync::MutexGuard;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::Instant;

/// Ranges of one file that are printed for a person.
const SHOWN_RANGES_MAX: usize = 20;

/// What is done with what is found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Task {
    /// Sums are listed, and trees written if a file for them is named.
    List,
    /// Sums or trees are compared with what they should be.
    Check,
    /// Entries are listed.
    Manifest,
}

/// What was found so far.
#[derive(Debug, Default)]
pub struct Tally {
    /// Regular files that were hashed.
    pub files: u64,
    /// Entries of a manifest, of whatever kind.
    pub entries: u64,
    /// Bytes that were hashed.
    pub bytes: u64,
    /// Files that are not as they should be.
    pub different: u64,
    /// Of these, paths where no regular file is, or one without the bytes that are listed.
    pub unhashed: u64,
    /// Files that are listed and not there.
    pub missing: u64,
    /// Paths that could not be read, lines that are none.
    pub problems: u64,
    /// Why nothing more could be written.
    pub failed: Option<String>,
}

/// Told by the engine what is found.
pub struct Report<'r> {
    task: Task,
    json: bool,
    quiet: bool,
    stop: &'r AtomicBool,
    started: Instant,
    state: Mutex<State>,
}

struct State {
    out: BufWriter<Stdout>,
    tree: Option<TreeFile>,
    manifest: Option<Manifest>,
    tally: Tally,
}

/// The file of hash trees.
const TREES: Form = Form {
    what: "the hash trees",
    begins: b"driftless-tree ",
};

/// A tree file that is being written.
type TreeFile = TreeWriter<BufWriter<Product>>;

impl<'r> Report<'r> {
    /// Begins the output. `stop` is set when nothing more can be written.
    pub fn new(args: &SumArgs, stop: &'r AtomicBool) -> Result<Self, String> {
        let tree = match (&args.tree, args.leaf_bytes()) {
            (Some(path), Some(leaf_bytes)) => Some(begin_trees(args, path, leaf_bytes)?),
            _ => None,
        };
        let mut state = State {
            out: BufWriter::new(io::stdout()),
            tree,
            manifest: None,
            tally: Tally::default(),
        };
        if args.manifest {
            let (manifest, line) = Manifest::begin();
            state.manifest = Some(manifest);
            if !args.json {
                state.write(&line);
            }
        }
        let (task, json, quiet) = (args.task(), args.json, args.quiet);
        Ok(Report {
            task,
            json,
            quiet,
            stop,
            started: Instant::now(),
            state: Mutex::new(state),
        })
    }

    /// Files that are not hashed, since they are this very output.
    pub fn own_files(&self) -> Vec<(u64, u64)> {
        self.lock()
            .tree
            .as_ref()
            .map(|tree| tree.get_ref().get_ref().ids())
            .unwrap_or_default()
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock()
    }

    /// Ends the output: the last line of a complete manifest, the tree file, what was wrong.
    /// Returns the code that `code` finds.
    pub fn end(&self, complete: bool, code: impl Fn(&Tally) -> Exit) -> Exit {
        let state = &mut *self.lock();
        let whole = complete && state.tally.problems == 0;
        let root = state.manifest.take().filter(|_| whole).map(Manifest::end);
        if let Some((line, _)) = root.as_ref().filter(|_| !self.json) {
            state.write(line);
        }
        let flushed = state.out.flush().map_err(|error| unwritten(&error));
        state.keep_failure(flushed);
        if let Some(tree) = state.tree.take().filter(|_| complete) {
            let published = publish_trees(tree, whole && state.tally.failed.is_none());
            state.keep_failure(published);
        }
        let code = code(&state.tally);
        if self.json {
            let summary = self.summary(&state.tally, root.map(|(_, root)| root), code);
            state.write_json(&SumEvent::Summary(summary));
            let _it_was_told_if_this_fails_too = state.out.flush();
        }
        self.say_what_was_wrong(&state.tally, complete);
        code
    }

    fn summary(&self, tally: &Tally, root: Option<Digest>, code: Exit) -> SumSummary {
        SumSummary {
            exit_code: code.code(),
            seconds: self.started.elapsed().as_secs_f64(),
            files: tally.files,
            bytes: tally.bytes,
            different: tally.different,
            missing: tally.missing,
            problems: tally.problems,
            entries: (self.task == Task::Manifest).then_some(tally.entries),
            root: root.map(|root| root.to_string()),
        }
    }

    fn say_what_was_wrong(&self, tally: &Tally, complete: bool) {
        if let Some(failed) = &tally.failed {
            eprintln!("driftless: {failed}");
        }
        if !complete {
            eprintln!("driftless: not finished");
        }
        if tally.different + tally.missing > 0 {
            let listed = tally.files + tally.unhashed + tally.missing;
            let files = show_counted(listed, "file", "files");
            eprintln!(
                "driftless: of {files}: {} different, {} missing",
                show_count(tally.different),
                show_count(tally.missing)
            );
        } else if self.task == Task::Check && tally.files + tally.problems == 0 && complete {
            eprintln!("driftless: nothing is listed, so nothing was verified");
        }
        if tally.problems > 0 {
            let no_root = if self.task == Task::Manifest {
                "; without them the manifest has no last line"
            } else {
                ""
            };
            let noun = if tally.problems == 1 {
                "problem"
            } else {
                "problems"
            };
            eprintln!("driftless: {} {noun}{no_root}", show_count(tally.problems));
        }
    }

    fn listed(&self, state: &mut State, target: &Target, path: &[u8], sum: &Sum) {
        if let (Some(file), Some(tree)) = (&mut state.tree, &sum.tree) {
            let added = file
                .add(path, tree)
                .map_err(|error| file.get_ref().get_ref().unwritten(&error));
            state.keep_failure(added);
        }
        if self.json {
            return state.write_json(&SumEvent::Sum {
                path: bytes_text(path),
                algorithm: target.algorithm.word(),
                hash: sum.digest.to_string(),
                start: sum.range.start,
                end: sum.range.end,
            });
        }
        let mut line = Vec::with_capacity(path.len() + 80);
        push_line(
            &mut line,
            target.algorithm,
            &sum.digest,
            target.range.as_ref().map(|_| &sum.range),
            path,
        );
        state.write(&line);
    }

    fn checked(&self, state: &mut State, path: &[u8], sum: &Sum, expected: &Expected) {
        let (hash, ranges) = match (expected, &sum.tree) {
            (Expected::Digest(digest), _) if *digest == sum.digest => (*digest, Vec::new()),
            (Expected::Digest(digest), _) => (*digest, vec![sum.range.clone()]),
            (Expected::Tree(tree), Some(now)) => (tree.root(), tree.differing(now)),
            (Expected::Tree(_), None) => unreachable!("a tree is made wherever one is expected"),
        };
        let is_same = ranges.is_empty();
        state.tally.different += u64::from(!is_same);
        if self.quiet && is_same {
            return;
        }
        if self.json {
            let pair = |range: &Range<u64>| [range.start, range.end];
            return state.write_json(&SumEvent::Checked {
                path: bytes_text(path),
                result: if is_same {
                    Checked::Ok
                } else {
                    Checked::Differs
                },
                hash: Some(sum.digest.to_string()),
                expected: Some(hash.to_string()),
                ranges: Some(ranges.iter().map(pair).collect()),
            });
        }
        let line = match expected {
            _ if is_same => format!("{}: OK\n", escape(path)),
            Expected::Digest(_) => format!("{}: differs\n", escape(path)),
            Expected::Tree(tree) => format!(
                "{}: differs in bytes {}{}\n",
                escape(path),
                shown(&ranges),
                resized(tree, sum)
            ),
        };
        state.write(line.as_bytes());
    }

    /// Tells of a path that differs without a hash.
    fn unlike(&self, state: &mut State, path: &[u8], (expected, why): (&Expected, &str)) {
        state.tally.different += 1;
        state.tally.unhashed += 1;
        let expected = match expected {
            Expected::Digest(digest) => *digest,
            Expected::Tree(tree) => tree.root(),
        };
        if self.json {
            state.write_json(&SumEvent::Checked {
                path: bytes_text(path),
                result: Checked::Differs,
                hash: None,
                expected: Some(expected.to_string()),
                ranges: None,
            });
        } else {
            state.write(format!("{}: differs ({why})\n", escape(path)).as_bytes());
        }
    }

    fn missing(&self, state: &mut State, path: &[u8]) {
        if self.task != Task::Check {
            return self.problem(state, path, "no such file or directory");
        }
        state.tally.missing += 1;
        if self.json {
            state.write_json(&SumEvent::Checked {
                path: bytes_text(path),
                result: Checked::Missing,
                hash: None,
                expected: None,
                ranges: None,
            });
        } else {
            state.write(format!("{}: missing\n", escape(path)).as_bytes());
        }
    }

    fn problem(&self, state: &mut State, path: &[u8], cause: &str) {
        state.tally.problems += 1;
        if self.json {
            state.write_json(&SumEvent::Problem {
                path: (!path.is_empty()).then(|| bytes_text(path)),
                cause: cause.to_owned(),
            });
        }
        let place = if path.is_empty() {
            String::new()
        } else {
            format!("\"{}\": ", escape(path))
        };
        eprintln!("driftless: {place}{cause}");
    }

    fn entry(&self, state: &mut State, path: &[u8], entry: &Entry, content: Option<&Digest>) {
        let Some(line) = state
            .manifest
            .as_mut()
            .map(|manifest| manifest.add(path, entry, content))
        else {
            return;
        };
        if !self.json {
            return state.write(&line);
        }
        let meta = &entry.meta;
        state.write_json(&SumEvent::Entry {
            path: bytes_text(path),
            kind: meta.kind,
            mode: meta.mode,
            uid: meta.uid,
            gid: meta.gid,
            size: meta.size,
            mtime: [meta.mtime.sec, i64::from(meta.mtime.nsec)],
            content: content.map(ToString::to_string),
        });
    }
}

impl SumMonitor for Report<'_> {
    fn found(&self, found: &Found) {
        let (state, path) = (&mut *self.lock(), found.path.as_slice());
        match (&found.what, &found.target) {
            (What::Sum(sum), Some(target)) => {
                state.tally.files += 1;
                state.tally.bytes += sum.range.end - sum.range.start;
                match &target.expected {
                    Some(expected) => self.checked(state, path, sum, expected),
                    None => self.listed(state, target, path, sum),
                }
            }
            (What::Entry(entry, content), _) => {
                state.tally.entries += 1;
                if entry.meta.kind == Kind::File {
                    state.tally.files += 1;
                    state.tally.bytes += entry.meta.size;
                }
                self.entry(state, path, entry, content.as_ref());
            }
            (What::Missing, _) => self.missing(state, path),
            (What::Differs(why), Some(target)) => {
                let expected = target.expected.as_ref().expect("only such targets differ");
                self.unlike(state, path, (expected, why));
            }
            (What::Problem(cause), _) => self.problem(state, path, cause),
            (What::Sum(_) | What::Differs(_), None) => unreachable!("what was hashed is a target"),
        }
        if state.tally.failed.is_some() {
            self.stop.store(true, Relaxed);
        }
    }

    fn tick(&self) {
        let state = &mut *self.lock();
        let flushed = state.out.flush().map_err(|error| unwritten(&error));
        state.keep_failure(flushed);
    }
}

impl State {
    fn write(&mut self, bytes: &[u8]) {
        let written = self.out.write_all(bytes).map_err(|error| unwritten(&error));
        self.keep_failure(written);
    }

    fn write_json(&mut self, event: &SumEvent) {
        self.write((line(event) + "\n").as_bytes());
    }

    /// Keeps the first failure.
    fn keep_failure(&mut self, done: Result<(), String>) {
        if let Err(failure) = done {
            self.tally.failed.get_or_insert(failure);
        }
    }
}

fn unwritten(error: &io::Error) -> String {
    format!("cannot write to standard output: {}", cause(error))
}

/// Begins the file of hash trees, which must not be one of the files that are hashed.
fn begin_trees(args: &SumArgs, path: &Path, leaf_bytes: u64) -> Result<TreeFile, String> {
    let product = Product::begin(path, TREES)?;
    if product
        .ids()
        .iter()
        .any(|id| args.paths.iter().any(|path| id_at(path) == Some(*id)))
    {
        return Err(format!(
            "{}: it is one of the files to hash, and would be replaced by their hash trees",
            product.name()
        ));
    }
    let failed = product.name();
    TreeWriter::new(BufWriter::new(product), leaf_bytes)
        .map_err(|error| format!("{failed}: cannot write the hash trees: {}", cause(&error)))
}

/// Gives the file of hash trees its name. An earlier one stays where this one is not whole.
fn publish_trees(tree: TreeFile, whole: bool) -> Result<(), String> {
    if !whole && tree.get_ref().get_ref().replaces() {
        eprintln!(
            "driftless: {}: left as it was, since not all could be hashed",
            tree.get_ref().get_ref().name()
        );
        return Ok(());
    }
    let name = tree.get_ref().get_ref().name();
    let done = tree
        .finish()
        .and_then(|out| out.into_inner().map_err(io::IntoInnerError::into_error));
    done.map_err(|error| format!("{name}: cannot write the hash trees: {}", cause(&error)))?
        .publish()
}

/// Ranges for a person, in the form of `--range`.
fn shown(ranges: &[Range<u64>]) -> String {
    let some: Vec<String> = ranges
        .iter()
        .take(SHOWN_RANGES_MAX)
        .map(|range| format!("{}-{}", range.start, range.end))
        .collect();
    let more = if ranges.len() > SHOWN_RANGES_MAX {
        " and more"
    } else {
        ""
    };
    some.join(" ") + more
}

fn resized(tree: &HashTree, sum: &Sum) -> String {
    let (was, is) = (tree.size(), sum.range.end);
    if was == is {
        String::new()
    } else {
        format!(" (had {was} bytes, has {is})")
    }
}
