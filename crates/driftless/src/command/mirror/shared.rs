//! Snapshots of a replica that a failover can go back to, and whether each is unchanged since the
//! mirror made it: another program may have changed or replaced it.

use driftless_detect::snapshot::{Provider, SnapshotError};
use driftless_mirror::recovery::Loss;

/// State of a snapshot of the replica.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Standing {
    /// Unchanged since the mirror made it.
    Same,
    /// Unknown: the state has no identity of it, or its file system has none.
    Unknown,
    /// Changed or replaced.
    Other,
    /// Deleted.
    Gone,
}

/// The snapshots that source and replica have in common, the newest first.
pub struct Shared(Vec<(String, Standing)>);

impl Shared {
    /// Compares the recorded snapshots with the present ones. Without a provider, there are none.
    ///
    /// # Errors
    /// The snapshots cannot be listed.
    pub fn of(loss: &Loss, provider: Option<&dyn Provider>) -> Result<Shared, SnapshotError> {
        let Some(provider) = provider else {
            return Ok(Shared(Vec::new()));
        };
        let there = provider.list()?;
        // The mirror may have been cut off before it could note that the replica has it.
        let read = loss
            .read
            .iter()
            .filter(|name| there.contains_key(*name) && loss.common.first() != Some(*name));
        let names = read.chain(&loss.common);
        let looked_at = names.map(|name| {
            let standing = match there.contains_key(name) {
                true => standing(loss, provider, name)?,
                false => Standing::Gone,
            };
            Ok((name.clone(), standing))
        });
        looked_at.collect::<Result<_, _>>().map(Shared)
    }

    /// Returns the snapshot that the replica goes back to: the newest one, unless that was changed
    /// or deleted. In that case, only one that is known to be unchanged takes its place. Returns
    /// the reason if there is none.
    pub fn newest(&self) -> Result<String, String> {
        let Some((name, standing)) = self.0.first() else {
            return Err(
                "source and replica have no snapshot in common; --to latest needs none (nothing was changed)".into(),
            );
        };
        if matches!(standing, Standing::Same | Standing::Unknown) {
            return Ok(name.clone());
        }
        let same = self
            .0
            .iter()
            .find(|(_, standing)| *standing == Standing::Same);
        same.map(|(name, _)| name.clone()).ok_or_else(|| {
            let what = words(name, *standing);
            format!("{what}; no older common snapshot is known to be unchanged; --to latest keeps the present state of the replica (nothing was changed)")
        })
    }

    /// Returns warnings about the snapshot that is used, and about newer ones that are not.
    pub fn doubts(&self, to: &str) -> Vec<String> {
        let newer = self.0.iter().take_while(|(name, _)| name != to);
        let mut doubts: Vec<String> = newer
            .filter(|(_, standing)| matches!(standing, Standing::Other | Standing::Gone))
            .map(|(name, standing)| {
                format!("{}; the failover does not use it", words(name, *standing))
            })
            .collect();
        if self.standing(to) == Standing::Unknown {
            doubts.push(format!(
                "cannot tell whether another program changed or replaced the snapshot {to} of the replica"
            ));
        }
        doubts
    }

    /// Returns the state of a snapshot; unknown for one that is not recorded.
    pub fn standing(&self, name: &str) -> Standing {
        let found = self.0.iter().find(|(one, _)| one == name);
        found.map_or(Standing::Unknown, |(_, standing)| *standing)
    }
}

fn standing(loss: &Loss, provider: &dyn Provider, name: &str) -> Result<Standing, SnapshotError> {
    let is = provider.identity(name)?;
    Ok(match is.zip(loss.identities.get(name)) {
        None => Standing::Unknown,
        Some((is, was)) if is == *was => Standing::Same,
        Some(_) => Standing::Other,
    })
}

fn words(name: &str, standing: Standing) -> String {
    match standing {
        Standing::Gone => format!("the replica has no snapshot {name} any more"),
        _ => format!("another program changed or replaced the snapshot {name} of the replica"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_newest_is_taken_unless_it_is_known_to_be_another() {
        use Standing::{Gone, Other, Same, Unknown};
        for (standings, taken, doubts) in [
            (&[][..], None, 0),
            (&[Same, Same], Some("0"), 0),
            (&[Unknown, Same], Some("0"), 1),
            (&[Other, Same], Some("1"), 1),
            (&[Other, Unknown, Gone, Same], Some("3"), 2),
            (&[Gone, Same], Some("1"), 1),
            (&[Other, Unknown], None, 0),
            (&[Gone], None, 0),
        ] {
            let numbered = standings.iter().enumerate();
            let names = numbered.map(|(number, standing)| (number.to_string(), *standing));
            let shared = Shared(names.collect());
            let newest = shared.newest().ok();
            assert_eq!(newest.as_deref(), taken, "{standings:?}");
            let told = newest.map_or(0, |name| shared.doubts(&name).len());
            assert_eq!(told, doubts, "{standings:?}");
        }
    }
}
