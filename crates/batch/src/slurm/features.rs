//! Features of nodes, and constraints of jobs over them (`--constraint` in sbatch(1)).

use crate::DataSlot;

/// Returns the names in a list of features.
pub(super) fn list(text: &str) -> Vec<String> {
    let names = text.split(',').map(str::trim);
    names
        .filter(|name| !name.is_empty() && *name != "(null)")
        .map(str::to_owned)
        .collect()
}

/// Constraint of a job, as `squeue` prints it.
#[derive(Debug, Clone, Copy)]
pub(super) struct Constraint<'a>(&'a str);

impl<'a> Constraint<'a> {
    pub fn new(text: &'a str) -> Self {
        Constraint(if text == "(null)" { "" } else { text })
    }

    /// Returns whether the constraint demands a slot.
    pub fn demands(self, slot: &DataSlot) -> bool {
        self.names().any(|name| name == slot.as_str())
    }

    /// Returns the constraint with the demand of a slot, or `None` if Slurm has no way to say both:
    /// a constraint with counts of nodes holds for so many nodes only.
    ///
    /// Slurm reads `&` and `|` from left to right, so the slot at the end holds for the whole.
    /// Parentheses cannot be nested.
    pub fn with(self, slot: &DataSlot) -> Option<String> {
        let text = self.0;
        if text.contains('*') {
            None
        } else if text.is_empty() {
            Some(slot.to_string())
        } else if text.contains('|') && !text.contains(['(', '[']) {
            Some(format!("({text})&{slot}"))
        } else {
            Some(format!("{text}&{slot}"))
        }
    }

    /// Returns whether a node with these features may be one of the job's. Slots of driftless count
    /// as true, and so does a constraint with counts or characters that are unknown here.
    pub fn allows(self, features: &[String]) -> bool {
        let mut left = self.0;
        if left.contains(['*', '!']) {
            return true;
        }
        let found = alternatives(&mut left, &|name| {
            name.starts_with(DataSlot::PREFIX) || features.iter().any(|one| one == name)
        });
        found.unwrap_or(true) || !left.is_empty()
    }

    fn names(self) -> impl Iterator<Item = &'a str> {
        self.0.split(is_operator).filter(|name| !name.is_empty())
    }
}

fn is_operator(c: char) -> bool {
    "&|()[]*,".contains(c)
}

/// Evaluates terms from left to right up to the end or a closing bracket. Returns `None` for text of
/// another form.
fn alternatives(left: &mut &str, has: &dyn Fn(&str) -> bool) -> Option<bool> {
    let mut value = term(left, has)?;
    while let Some(operator) = left.chars().next().filter(|c| "&|,".contains(*c)) {
        *left = &left[1..];
        let next = term(left, has)?;
        value = match operator {
            '|' => value || next,
            _ => value && next,
        };
    }
    Some(value)
}

fn term(left: &mut &str, has: &dyn Fn(&str) -> bool) -> Option<bool> {
    if let Some(inside) = left.strip_prefix(['(', '[']) {
        *left = inside;
        let value = alternatives(left, has)?;
        *left = left.strip_prefix([')', ']'])?;
        return Some(value);
    }
    let end = left.find(is_operator).unwrap_or(left.len());
    let (name, rest) = left.split_at(end);
    *left = rest;
    (!name.is_empty()).then(|| has(name))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slots_join_constraints() {
        let slot = DataSlot::numbered(1);
        for (old, new) in [
            ("(null)", Some("driftless_1")),
            ("A", Some("A&driftless_1")),
            ("A&B", Some("A&B&driftless_1")),
            ("A|B", Some("(A|B)&driftless_1")),
            ("(A&B)|C", Some("(A&B)|C&driftless_1")),
            ("[A|B]", Some("[A|B]&driftless_1")),
            ("A*2", None),
            ("[A*2&B*1]", None),
        ] {
            assert_eq!(Constraint::new(old).with(&slot).as_deref(), new, "{old}");
        }
        assert!(Constraint::new("(A|B)&driftless_1").demands(&slot));
        assert!(!Constraint::new("A&driftless_12").demands(&slot));
    }

    #[test]
    fn constraints_choose_nodes() {
        let features = ["A".to_owned(), "C".to_owned()];
        for (constraint, expected) in [
            ("(null)", true),
            ("A", true),
            ("B", false),
            ("A&B", false),
            ("A|B", true),
            ("B|A&C", true),
            ("A|B&B", false),
            ("(B|A)&C", true),
            ("[B|A]", true),
            ("C&(A&B)", false),
            ("A&driftless_3", true),
            ("B*2", true),
            ("A&", true),
        ] {
            assert_eq!(
                Constraint::new(constraint).allows(&features),
                expected,
                "{constraint}"
            );
        }
    }

    #[test]
    fn empty_lists_have_no_names() {
        assert!(list("(null)").is_empty() && list("").is_empty());
        assert_eq!(list("a,b"), ["a", "b"]);
    }
}
