//! A leader whose table fails.

use super::*;
use crate::distribution::{
    CollectGuard, CollectOrder, CollectOutcome, CollectedResults, Distribution, LoadEvent,
    LoadOrder, NodeAnswer, OutboxState,
};
use crate::lease::LeaseCandidate;
use crate::parts::{GatewayParts, GatewaySettings};
use driftless_batch::{BatchKind, CommandSettings};
use driftless_lock::Mutex;
use driftless_state::jobs::{JobTable, NewJob};
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

const MARK: &str = "0000000000000001";

/// A distribution without nodes.
struct NoNodes;

impl Distribution for NoNodes {
    fn nodes(&self) -> Vec<String> {
        Vec::new()
    }

    fn reaches(&self, _: &str) -> bool {
        false
    }

    fn spool_directory(&self, _: &str) -> String {
        String::new()
    }

    fn results_directory(&self, _: &str) -> String {
        String::new()
    }

    fn load(
        &self,
        _: &LoadOrder,
        _: &(dyn Fn(LoadEvent) + Sync),
        _: &AtomicBool,
    ) -> Result<(), String> {
        Ok(())
    }

    fn end_job(&self, _: &str, _: &[String]) -> Vec<NodeAnswer<()>> {
        Vec::new()
    }

    fn jobs_on(&self, _: &[String], _: &str) -> Vec<NodeAnswer<Vec<String>>> {
        Vec::new()
    }

    fn outboxes(&self, _: &str, _: &[String]) -> Vec<NodeAnswer<OutboxState>> {
        Vec::new()
    }

    fn collect(&self, _: &CollectOrder, _: &dyn CollectGuard, _: &AtomicBool) -> CollectOutcome {
        CollectOutcome::failed("no node".into())
    }
}

fn parts(dir: &Path) -> Arc<GatewayParts> {
    let table = JobTable::open(&dir.join("jobs.db")).expect("a table");
    let settings = GatewaySettings::new(dir.to_owned(), dir.join("socket"), "a".into());
    Arc::new(GatewayParts {
        settings,
        batch: Arc::from(driftless_batch::system(
            BatchKind::Pbs,
            CommandSettings::default(),
        )),
        distribution: Arc::new(NoNodes),
        group: table.gateways().expect("a name"),
        table: Mutex::new(table),
        batch_fault: Mutex::new(None),
        nudge: crossbeam_channel::bounded(1).0,
    })
}

fn collected(node: &str) -> WorkEvent {
    WorkEvent::Collected {
        mark: MARK.into(),
        node: node.into(),
        outcome: CollectOutcome {
            collected: CollectedResults {
                entries: 1,
                bytes: 2,
            },
            fault: None,
        },
    }
}

#[test]
#[allow(clippy::disallowed_methods, reason = "breaks the table")]
fn failing_table_loses_no_event() {
    let folder = TempDir::new().expect("a folder");
    let parts = parts(folder.path());
    let lease = {
        let mut table = parts.table.lock();
        let new = NewJob {
            mark: MARK,
            uid: 1000,
            owner: "alice",
            system: "pbs",
            request: &[],
            now: now(),
        };
        table.add(&new).expect("added");
        let mut candidate = LeaseCandidate::new(Duration::from_secs(600));
        let lease = candidate.try_take(&mut table, "a", Instant::now());
        lease.expect("asked").expect("free")
    };
    let mut leader = GatewayLeader::new(&parts, &lease);
    leader.reload().expect("read");
    // SQLite can write no journal.
    let journal = folder.path().join("jobs.db-journal");
    std::fs::create_dir(&journal).expect("made");
    for event in [
        collected("n1"),
        collected("n2"),
        WorkEvent::Data {
            mark: MARK.into(),
            hash: "aa".into(),
            bytes: 7,
        },
    ] {
        leader.works.take_back(Some(event));
    }
    assert!(matches!(leader.absorb(), Err(ChangeError::State(_))));
    std::fs::remove_dir(&journal).expect("removed");
    leader.absorb().expect("written");
    let table = parts.table.lock();
    let row = table.find(MARK).expect("read").expect("a job");
    assert_eq!((row.hash.as_deref(), row.bytes), (Some("aa"), Some(7)));
    let results = table.results(MARK).expect("read");
    let nodes: Vec<&str> = results.iter().map(|row| row.node.as_str()).collect();
    assert_eq!(nodes, ["n1", "n2"]);
}
