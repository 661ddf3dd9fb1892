//! The problems that a person gets again at the end of a run, up to a bound; those of one kind in
//! one line where the kind says enough.

use crate::units::{show_count, show_counted};
use driftless_model::event::ProblemMet;
use driftless_model::{Class, READ_ONLY};
use std::collections::HashMap;

/// Problems that are listed at the end; a log has all of them.
const LISTED_MAX: usize = 100;

/// Problems for the list at the end.
#[derive(Default)]
pub struct Listed {
    total: u64,
    /// A line for each, but for those whose kind says enough: of these one for each kind, and how
    /// many more there are.
    lines: Vec<(String, u64)>,
    /// The line of each such kind.
    kinds: HashMap<String, usize>,
}

impl Listed {
    /// Notes a problem, with its line.
    pub fn add(&mut self, problem: &ProblemMet, line: String) {
        self.total += 1;
        let kind = kind_of(problem);
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

/// Returns the kind of a problem of which one line says enough: a property that is not kept, or a
/// file system that cannot be changed.
fn kind_of(problem: &ProblemMet) -> Option<String> {
    let (side, cause) = (problem.side, &problem.cause);
    match problem.class {
        _ if cause == READ_ONLY => Some(format!("{}: {cause}", side.word())),
        Class::Partly => Some(format!("{}: {cause}", problem.act.on(side))),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::output::json::path_text;
    use driftless_model::{Act, Fault, Problem, RelPath, Side, errno};

    #[test]
    fn read_only_file_system_is_one_line() {
        let mut listed = Listed::default();
        let mut add = |name: &str, act, errno| {
            let path = RelPath::parse(name.as_bytes()).expect("a path");
            let fault = Fault {
                side: Side::Replica,
                act,
                errno,
            };
            let problem = Problem::new(path.clone(), fault, Class::Skip);
            listed.add(
                &ProblemMet::new(&problem, path_text(&path)),
                name.to_owned(),
            );
        };
        add("a", Act::Create, errno::EROFS);
        add("b", Act::Create, errno::EIO);
        add("c", Act::MakeDirectory, errno::EROFS);
        add("d", Act::Create, errno::EIO);
        let lines = [("a", 1_u64), ("b", 0), ("d", 0)].map(|(line, more)| (line.to_owned(), more));
        assert_eq!(listed.lines, lines);
    }
}
