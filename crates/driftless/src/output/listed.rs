//! The problems that a person gets again at the end of a run, up to a bound; those of one kind in
//! one line where the kind says enough.

use crate::units::{show_count, show_counted};
use driftless_model::Class;
use driftless_model::event::ProblemMet;
use std::collections::HashMap;

/// Problems that are listed at the end; a log has all of them.
const LISTED_MAX: usize = 100;

/// Problems for the list at the end.
#[derive(Default)]
pub struct Listed {
    total: u64,
    /// A line for each, but for those of properties that are not kept: of these one for each kind,
    /// and how many more there are.
    lines: Vec<(String, u64)>,
    /// The line of each such kind.
    kinds: HashMap<String, usize>,
}

impl Listed {
    /// Notes a problem, with its line.
    pub fn add(&mut self, problem: &ProblemMet, line: String) {
        self.total += 1;
        let kind = (problem.class == Class::Partly)
            .then(|| format!("{}: {}", problem.act.on(problem.side), problem.cause));
        match kind.as_ref().and_then(|kind| self.kinds.get(kind)) {
            Some(number) => self.lines[*number].1 += 1,
            None if self.lines.len() < LISTED_MAX => {
                self.kinds.extend(kind.map(|kind| (kind, self.lines.len())));
                self.lines.push((line, 0));
            }
            None => {}
        }
    }

    /// How many problems no line speaks of.
    fn unlisted(&self) -> u64 {
        self.total - self.lines.iter().map(|(_, more)| 1 + more).sum::<u64>()
    }

    /// Prints them.
    pub fn print(&self) {
        if self.total == 0 {
            return;
        }
        eprintln!(
            "driftless: {}:",
            show_counted(self.total, "problem", "problems")
        );
        for (line, others) in &self.lines {
            let others = if *others == 0 {
                String::new()
            } else {
                format!("; the same for {} more", show_count(*others))
            };
            eprintln!("  {line}{others}");
        }
        if self.unlisted() > 0 {
            eprintln!(
                "  and {} more (--log FILE keeps all)",
                show_count(self.unlisted())
            );
        }
    }
}
