//! The mark of a replica: whose it is, which run worked on it last, and what of it may not be
//! durable.
//!
//! A run writes its mark before it changes anything, and takes back that something is not durable
//! when the file systems have written everything out. So a run that finds it said knows that an
//! earlier one did not come so far (the power failed, the disk did, or the process was killed), and
//! since when. What was changed since then has the right size and time, and perhaps not the right
//! content.
//!
//! The mark is text of at most 4 KiB, one line each: a version, an identity, a run, then what is
//! not durable. Lines of another kind are kept as they are: later versions have more to say.

use crate::upstream::UPSTREAM_MAX;
use driftless_model::Stamp;

const VERSION: &str = "driftless mark 1";
/// Lines of what is not durable, at most; each takes up to 137 bytes.
const UNSETTLED_MAX: usize = 8;
/// Bytes of lines that are not understood and are kept, at most.
const OTHER_BYTES_MAX: usize = 448;

/// Bytes of a mark that is read; more than any version has written is none.
const BYTES_MAX: usize = 4096;

/// In the place of a run whose movers may change the replica: nobody's, and those of an earlier run
/// may not have noticed.
pub const SOMEBODY: u128 = 0;

/// Since when something is in doubt of which nobody knows since when.
pub const EVER: Stamp = Stamp {
    sec: i64::MIN,
    nsec: 0,
};

/// What a run looks at: two runs that look at the same can vouch for each other.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Scope {
    /// The source, as a number.
    pub source: u64,
    /// Which entries of it, as a number.
    pub entries: u64,
    /// They are all that it has.
    pub whole: bool,
}

/// What a run has changed and nobody has made durable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unsettled {
    /// Since when, by the clock of the replica's file system.
    pub since: Stamp,
    /// Which run, or 0 for several.
    pub run: u128,
    /// What it looked at: its source, or 0 for several.
    pub source: u64,
    /// Which entries of that (see [`Scope`]), or 0 for several choices.
    pub entries: u64,
    /// Which boot of the machine on which the replica was written.
    pub boot: u64,
    /// The run came to its end, and left it to the kernel to write everything out.
    pub is_left: bool,
}

impl Unsettled {
    /// Whether it speaks of the run `run` in the boot `boot`, and of no other; 0 is none.
    fn is_of(&self, run: u128, boot: u64) -> bool {
        run != 0 && self.run == run && self.boot == boot
    }
}

/// A mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mark {
    /// Which replica this is; drawn once.
    pub identity: u128,
    /// The run that is at work, or was at work last.
    pub run: u128,
    /// The run whose movers may change the replica, if movers may, as all its lives call it: a
    /// coordinator that goes on with it is another run by the number above. [`SOMEBODY`] where
    /// those of an earlier run are given time to notice that they may not any more.
    pub movers: Option<u128>,
    /// Since when the replica is the active side of its job, in seconds since 1970: people work on
    /// it, and no mirror may. Not if it follows its source.
    pub active: Option<i64>,
    /// The trees that lead to it, the nearest first, where a mirror fills it: at most
    /// [`UPSTREAM_MAX`].
    pub upstream: Vec<u128>,
    /// The birthmark of the source from which the replica was filled: that of the last run that
    /// found no other name at the top of the replica.
    pub filled: Option<u128>,
    /// What may not be durable.
    pub unsettled: Vec<Unsettled>,
    /// Lines that are not understood.
    pub other: Vec<String>,
}

/// How a run came to its end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ending {
    /// What it looked at.
    pub scope: Scope,
    /// The file systems have written everything out.
    pub is_flushed: bool,
    /// That was left to the kernel, as the user wished.
    pub is_left: bool,
    /// Everything that it looks at was looked at, and is equal.
    pub is_complete: bool,
    /// And nothing else is on the replica.
    pub is_all: bool,
    /// The birthmark of the source, if the run looked at all of it, and the replica has no other
    /// name at the top. Single entries may have failed.
    pub filled: Option<u128>,
    /// What else is there, and was not compared, is as old as what nobody doubts.
    pub is_clear: bool,
}

impl Ending {
    /// Whether this run has compared all that `line` speaks of.
    ///
    /// A line says that files which were changed since then may have the wrong content. A run that
    /// has read it compares each of these that it looks at, and what is equal to its source is in
    /// doubt no longer, whoever wrote it. In doubt stays what it did not look at. So it covers the
    /// lines of all sources if nothing else is on the replica: with `--delete`, or because nothing
    /// else came there. If other entries are kept there, they may be what an earlier run has copied
    /// from another source, and the lines of that one stay. Lines of its own source it covers all
    /// the same, if it looks at all of that or at what the earlier run looked at, and nothing that
    /// is kept was changed since: what the source has was compared, and what it lacks now, and may
    /// have again later, is older than the line.
    fn covers(&self, line: &Unsettled) -> bool {
        let Scope {
            source,
            entries,
            whole,
        } = self.scope;
        let is_same = source == line.source && (whole || entries == line.entries);
        self.is_complete && (is_same && self.is_clear || whole && self.is_all)
    }
}

impl Mark {
    /// The mark of a replica that has none.
    pub fn new(identity: u128) -> Mark {
        Mark {
            identity,
            run: 0,
            movers: None,
            active: None,
            upstream: Vec::new(),
            filled: None,
            unsettled: Vec::new(),
            other: Vec::new(),
        }
    }

    /// Writes it.
    pub fn encode(&self) -> Vec<u8> {
        let mut text = format!(
            "{VERSION}\nidentity {:032x}\nrun {:032x}\n",
            self.identity, self.run
        );
        text.extend(self.movers.map(|run| format!("movers {run:032x}\n")));
        text.extend(self.active.map(|since| format!("active {since}\n")));
        if !self.upstream.is_empty() {
            let trees = self.upstream.iter().map(|tree| format!(" {tree:032x}"));
            text.push_str(&format!("upstream{}\n", trees.collect::<String>()));
        }
        text.extend(self.filled.map(|source| format!("filled {source:032x}\n")));
        for line in &self.unsettled {
            let word = if line.is_left { "left" } else { "since" };
            let Unsettled {
                since,
                run,
                source,
                entries,
                boot,
                ..
            } = line;
            let (sec, nsec) = (since.sec, since.nsec);
            text.push_str(&format!(
                "{word} {sec} {nsec} {run:032x} {source:016x} {entries:016x} {boot:016x}\n"
            ));
        }
        self.other
            .iter()
            .for_each(|line| text.push_str(&format!("{line}\n")));
        text.into_bytes()
    }

    /// Reads it; `None` if it is damaged, or of another version.
    pub fn decode(bytes: &[u8]) -> Option<Mark> {
        let mut lines = std::str::from_utf8(bytes)
            .ok()
            .filter(|text| text.len() <= BYTES_MAX)?
            .lines();
        if lines.next()? != VERSION {
            return None;
        }
        let mut number =
            |word: &str| u128::from_str_radix(lines.next()?.strip_prefix(word)?, 16).ok();
        let (identity, run) = (number("identity ")?, number("run ")?);
        let mut mark = Mark {
            run,
            ..Mark::new(identity)
        };
        for line in lines {
            let words: Vec<&str> = line.split(' ').collect();
            match &words[..] {
                ["movers", run] => mark.movers = Some(u128::from_str_radix(run, 16).ok()?),
                ["active", since] => mark.active = Some(since.parse().ok()?),
                ["upstream", rest @ ..] => mark.upstream = upstream(rest)?,
                ["filled", source] => mark.filled = Some(u128::from_str_radix(source, 16).ok()?),
                [word @ ("since" | "left"), rest @ ..] => {
                    mark.unsettled.push(unsettled(*word == "left", rest)?)
                }
                _ => mark.keep_other(line),
            }
        }
        Some(mark)
    }

    fn keep_other(&mut self, line: &str) {
        let bytes: usize = self.other.iter().map(|line| line.len() + 1).sum();
        if bytes + line.len() < OTHER_BYTES_MAX {
            self.other.push(line.into());
        }
    }

    /// Since when what was changed on the replica is not to be relied upon by the run `run` in the
    /// boot `boot`. What was left to the kernel in this very boot is still in its hands, and so is
    /// what this run did before it lost its connection.
    pub fn suspect_since(&self, run: u128, boot: u64) -> Option<Stamp> {
        let is_safe = |line: &Unsettled| line.boot == boot && line.is_left || line.is_of(run, boot);
        self.unsettled
            .iter()
            .filter(|line| !is_safe(line))
            .map(|line| line.since)
            .min()
    }

    /// Says of what is said to be since a moment that is still to come that nobody knows since
    /// when: the clock was put right.
    pub fn doubt_what_is_after(&mut self, now: Stamp) {
        self.unsettled
            .iter_mut()
            .filter(|line| line.since > now)
            .for_each(|line| line.since = EVER);
    }

    /// Says that nothing of it is later than this moment, at which something was changed: the clock
    /// was put back.
    pub fn put_back_to(&mut self, moment: Stamp) {
        self.unsettled
            .iter_mut()
            .for_each(|line| line.since = line.since.min(moment));
    }

    /// Says that a run begins to change the replica.
    pub fn begin(&mut self, own: Unsettled) {
        self.run = own.run;
        self.add(own);
    }

    /// Says that a run whose lock was taken away has changed the replica beside others since `own`
    /// began: what they have compared, it may have changed after that.
    pub fn leave_doubt(&mut self, own: &Unsettled) {
        self.put_back(Unsettled {
            run: 0,
            boot: 0,
            is_left: false,
            ..own.clone()
        });
    }

    /// Takes over those lines of the mark as it is `now` that runs without their locks have left
    /// since `told`.
    pub fn keep_doubt(&mut self, told: &Mark, now: &Mark) {
        let is_left = |line: &&Unsettled| line.run == 0 && line.boot == 0;
        let lines = now.unsettled.iter().filter(is_left);
        lines
            .filter(|line| !told.unsettled.contains(line))
            .for_each(|line| self.put_back(line.clone()));
    }

    fn put_back(&mut self, line: Unsettled) {
        if !self.unsettled.contains(&line) {
            self.add(line);
        }
    }

    /// Says whose movers may change the replica from now on: those of `run`, or nobody's. Tells
    /// whether those of an earlier run may be at work still, and must be given time.
    pub fn hand_to(&mut self, run: Option<u128>) -> bool {
        let is_left = self.movers.is_some() && self.movers != run;
        self.movers = run.or(is_left.then_some(SOMEBODY));
        is_left
    }

    /// Takes over what another mark of the same replica says.
    pub fn take_over(&mut self, other: Mark) {
        self.movers = self.movers.or(other.movers);
        self.active = self.active.or(other.active);
        self.filled = self.filled.or(other.filled);
        if self.upstream.is_empty() {
            self.upstream = other.upstream;
        }
        other.unsettled.into_iter().for_each(|line| self.add(line));
    }

    /// Adds a line. When there are more than the mark holds, two are told as one.
    fn add(&mut self, new: Unsettled) {
        let same = |line: &Unsettled| {
            Unsettled {
                since: new.since,
                run: new.run,
                ..line.clone()
            } == new
        };
        if let Some(line) = self.unsettled.iter_mut().find(|line| same(line)) {
            // A line of two runs is neither's own: what the earlier one did is not safe because the
            // later one goes on.
            let run = if line.run == new.run { new.run } else { 0 };
            (line.since, line.run) = (line.since.min(new.since), run);
            return;
        }
        self.unsettled.push(new);
        if self.unsettled.len() > UNSETTLED_MAX {
            self.condense();
        }
    }

    /// Tells two lines as one: of the same source if there are such, which a run that looks at all
    /// of it covers. The kernel may have forgotten what one of them speaks of, so it has forgotten
    /// both.
    fn condense(&mut self) {
        let alike = |a: &Unsettled, b: &Unsettled| {
            u8::from(a.source == b.source)
                + u8::from(a.source == b.source && a.entries == b.entries)
        };
        let pairs = (0..self.unsettled.len())
            .flat_map(|second| (0..second).map(move |first| (first, second)));
        let Some((first, second)) =
            pairs.max_by_key(|(a, b)| alike(&self.unsettled[*a], &self.unsettled[*b]))
        else {
            return;
        };
        let gone = self.unsettled.remove(second);
        let line = &mut self.unsettled[first];
        let alike = alike(line, &gone);
        let source = if alike > 0 { line.source } else { 0 };
        let entries = if alike > 1 { line.entries } else { 0 };
        *line = Unsettled {
            since: line.since.min(gone.since),
            run: 0,
            source,
            entries,
            boot: 0,
            is_left: false,
        };
    }

    /// What is left to say when a run is over, of what it `found` when it began and of its `own`
    /// changes, if it made any.
    #[must_use]
    pub fn settled(
        &self,
        own: Option<&Unsettled>,
        (run, boot): (u128, u64),
        ending: &Ending,
    ) -> Mark {
        let Ending {
            is_flushed,
            is_left,
            ..
        } = ending;
        let mut mark = Mark {
            unsettled: Vec::new(),
            ..self.clone()
        };
        for line in &self.unsettled {
            let is_own = line.is_of(run, boot);
            // What this run has not compared, because the kernel had it, is durable with a flush
            // alone.
            let is_compared = !(line.is_left && line.boot == boot);
            let is_over = is_own && *is_flushed
                || ending.covers(line) && (*is_flushed || *is_left && is_compared && !is_own);
            if !is_over {
                mark.add(Unsettled {
                    is_left: line.is_left || is_own && *is_left,
                    ..line.clone()
                });
            }
        }
        if let Some(own) = own {
            // It has waited for the movers of others, and for its own.
            (mark.run, mark.movers) = (own.run, None);
            if !is_flushed {
                mark.add(Unsettled {
                    is_left: *is_left,
                    ..own.clone()
                });
            }
        }
        mark
    }
}

fn upstream(words: &[&str]) -> Option<Vec<u128>> {
    let trees = words.iter().take(UPSTREAM_MAX);
    trees
        .map(|word| u128::from_str_radix(word, 16).ok())
        .collect()
}

fn unsettled(is_left: bool, words: &[&str]) -> Option<Unsettled> {
    let [sec, nsec, run, source, entries, boot] = words else {
        return None;
    };
    let number = |word: &str| u64::from_str_radix(word, 16).ok();
    Some(Unsettled {
        since: Stamp {
            sec: sec.parse().ok()?,
            nsec: nsec.parse().ok()?,
        },
        run: u128::from_str_radix(run, 16).ok()?,
        source: number(source)?,
        entries: number(entries)?,
        boot: number(boot)?,
        is_left,
    })
}

#[cfg(test)]
mod tests;
