//! What the coordinator of a run and its movers hear of each other: orders with batches, reports
//! with what came of them.
#![no_main]

use driftless_engine::message::{Order, Report, decode, encode, reports};
use driftless_engine::{
    Alive, Batch, Brief, Counts, Misspelt, Namesake, Options, Outcome, PartOfOutcome, Piece,
    ReplicaView, Route, Settled, View,
};
use driftless_fuzz::{begin, bounded, meta, said_again};
use driftless_model::{EntryName, Kind, RelPath, Rule, Unkept, check_name};
use driftless_reconcile::{Fingerprint, Ranges};
use driftless_tree::Endpoint;
use libfuzzer_sys::fuzz_target;
use std::path::PathBuf;

fuzz_target!(init: begin(seeds()), |bytes: &[u8]| {
    let order = bounded(bytes.len(), || decode::<Order>(bytes));
    if let Ok(order) = order {
        said_again(&order);
        ordered(order);
    }
    let report = bounded(bytes.len(), || decode::<Report>(bytes));
    if let Ok(report) = report {
        said_again(&report);
        reported(report);
    }
    if let Some(outcome) = bounded(bytes.len(), || part(bytes).read()) {
        said_again(&outcome);
        check_outcome(&outcome);
        in_parts(outcome);
    }
});

fn ordered(order: Order) {
    let Order::Batch { brief, batch, .. } = order else {
        return;
    };
    batch.pieces.iter().for_each(check_piece);
    batch.alike.iter().for_each(|(dir, namesakes)| {
        namesakes
            .iter()
            .for_each(|namesake| check_alike(dir, namesake))
    });
    let (source, replica) = brief.trees();
    let options = brief.options(Endpoint::from(source), Endpoint::from(replica));
    let again = Brief::of(&options, &brief.routes, brief.receipts);
    assert!(brief.routes.len() == again.routes.len());
    let _whatever_routes_there_are = brief.class_of(1 << 30);
}

fn check_alike(dir: &RelPath, namesake: &Namesake) {
    let names = namesake
        .earlier
        .iter()
        .chain([&namesake.name])
        .cloned()
        .collect();
    check_piece(&Piece::Entries(dir.clone(), names));
}

fn check_piece(piece: &Piece) {
    let (path, names): (&RelPath, &[EntryName]) = match piece {
        Piece::Root => return,
        Piece::Entries(dir, names) => (dir, names),
        Piece::Bytes(path, ..) | Piece::Rest(path, ..) => (path, &[]),
    };
    check_path(path);
    names
        .iter()
        .for_each(|name| assert!(check_name(name.as_bytes()).is_ok()));
    if let Piece::Rest(_, _, copied) = piece {
        check_ranges(copied);
    }
}

/// No path leads out of its tree.
fn check_path(path: &RelPath) {
    let names = path.as_bytes().split(|byte| *byte == b'/');
    names
        .filter(|_| !path.as_bytes().is_empty())
        .for_each(|name| assert!(check_name(name).is_ok()));
}

fn check_ranges(ranges: &Ranges) {
    let mut after = None;
    for range in ranges.iter() {
        assert!(
            range.start < range.end && after.is_none_or(|end| end < range.start),
            "sorted and merged"
        );
        after = Some(range.end);
    }
}

fn reported(report: Report) {
    match report {
        Report::Alive(sign) => count(&sign.counts),
        Report::Part(part) => part.read().iter().for_each(check_outcome),
        Report::Failed { .. } => {}
    }
}

fn count(counts: &Counts) {
    let mut total = *counts;
    total.add(counts);
    let _numbers = (
        total.skipped(),
        total.problems(),
        total.adds_up(),
        total.walked_share(),
    );
}

fn check_outcome(outcome: &Outcome) {
    count(&outcome.counts);
    outcome
        .problems
        .iter()
        .for_each(|problem| check_path(&problem.path));
    outcome
        .rest
        .iter()
        .for_each(|(_, piece)| check_piece(piece));
    outcome.links.iter().for_each(|link| check_path(&link.path));
    outcome
        .extras
        .iter()
        .for_each(|(dir, names)| check_piece(&Piece::Entries(dir.clone(), names.clone())));
    outcome.no_room.iter().for_each(check_path);
    outcome.mounts.iter().for_each(check_path);
    outcome.unkept.iter().for_each(|(_, path)| check_path(path));
    outcome
        .unfinished
        .iter()
        .for_each(|(dir, _)| check_path(dir));
    outcome
        .settled
        .iter()
        .for_each(|settled| check_path(&settled.path));
    outcome
        .alike
        .iter()
        .for_each(|(dir, namesake)| check_alike(dir, namesake));
    let misspelt = outcome.misspelt.iter().cloned();
    misspelt
        .for_each(|Misspelt { dir, from, to }| check_piece(&Piece::Entries(dir, vec![from, to])));
    outcome.copied.iter().for_each(|(path, _, copied)| {
        check_path(path);
        check_ranges(copied);
    });
}

/// However an outcome is cut, its parts say what it said.
fn in_parts(outcome: Outcome) {
    for bytes_max in [1, 300, usize::MAX] {
        let mut together = Outcome::default();
        for part in outcome.clone().split(bytes_max) {
            // All of it, so that what comes new is not forgotten here.
            let Outcome {
                counts,
                done,
                problems,
                rest,
                links,
                extras,
                no_room,
                unfinished,
                mounts,
                unkept,
                copied,
                settled,
                alike,
                misspelt,
            } = part;
            together.counts.add(&counts);
            together.done.extend(done);
            together.problems.extend(problems);
            together.rest.extend(rest);
            together.links.extend(links);
            together.extras.extend(extras);
            together.no_room.extend(no_room);
            together.unfinished.extend(unfinished);
            together.mounts.extend(mounts);
            together.unkept.extend(unkept);
            together.copied.extend(copied);
            together.settled.extend(settled);
            together.alike.extend(alike);
            together.misspelt.extend(misspelt);
        }
        let names = |outcome: &Outcome| {
            let of = |piece: &Piece| {
                if let Piece::Entries(_, names) = piece {
                    names.len()
                } else {
                    1
                }
            };
            let rest: usize = outcome.rest.iter().map(|(_, piece)| of(piece)).sum();
            (
                rest,
                outcome
                    .extras
                    .iter()
                    .map(|(_, names)| names.len())
                    .sum::<usize>(),
            )
        };
        assert_eq!(names(&together), names(&outcome));
        let rest = |outcome: Outcome| Outcome {
            rest: Vec::new(),
            extras: Vec::new(),
            ..outcome
        };
        assert_eq!(rest(together), rest(outcome.clone()));
    }
}

fn part(outcome: &[u8]) -> PartOfOutcome {
    PartOfOutcome {
        run: 1,
        id: 2,
        attempt: 3,
        number: 0,
        last: true,
        mover: "host:1".into(),
        outcome: outcome.to_vec(),
    }
}

fn fingerprint() -> Fingerprint {
    Fingerprint::of(&meta(Kind::File, 1 << 30))
}

fn seeds() -> Vec<Vec<u8>> {
    let path = || RelPath::parse(b"dir/file").expect("a path");
    let names = || {
        vec![
            EntryName::try_from(b"one".to_vec()).expect("a name"),
            EntryName::try_from(b"two".to_vec()).expect("a name"),
        ]
    };
    let ranges = || Ranges::from(vec![0..10, 20..30]);
    let pieces = vec![
        Piece::Root,
        Piece::Entries(path(), names()),
        Piece::Bytes(path(), fingerprint(), 5..99),
        Piece::Rest(path(), fingerprint(), ranges()),
    ];
    let tree = |path: &str| Endpoint::from(PathBuf::from(path));
    let mut options = Options {
        source: tree("/source"),
        replica: tree("host:/replica"),
        ..Options::default()
    };
    options.policy.filter.rules = vec![
        Rule::new(true, "*.c").expect("a rule"),
        Rule::new(false, "/scratch/").expect("a rule"),
    ];
    let routes = [Route {
        size_min: 1 << 20,
        class: "big".into(),
    }];
    let brief = || Box::new(Brief::of(&options, &routes, true));
    let namesake = || Namesake {
        name: names().remove(1),
        earlier: names(),
    };
    let misspelt = Misspelt {
        dir: path(),
        from: names().remove(0),
        to: names().remove(1),
    };
    let batch = Batch {
        pieces: pieces.clone(),
        class: 1,
        alone: false,
        walk: 1 << 20,
        alike: vec![(path(), vec![namesake()])],
    };
    let outcome = Outcome {
        rest: pieces.into_iter().map(|piece| (0, piece)).collect(),
        extras: vec![(path(), names())],
        no_room: vec![path()],
        alike: vec![(path(), namesake())],
        misspelt: vec![misspelt],
        unkept: vec![(Unkept::IMMUTABLE, path())],
        copied: vec![(path(), fingerprint(), ranges())],
        settled: vec![Settled {
            path: path(),
            source: Some(View::of(&meta(Kind::File, 1 << 30))),
            replica: ReplicaView::Made(7),
            is_equal: false,
            is_mounted: true,
        }],
        ..Outcome::default()
    };
    let alive = Alive {
        run: 1,
        id: 2,
        mover: "host:1".into(),
        counts: Counts {
            seen: 3,
            ..Counts::default()
        },
    };
    let mut all = vec![
        encode(&Order::Batch {
            brief: brief(),
            run: 1,
            id: 2,
            batch,
        }),
        encode(&Order::Yield),
        encode(&Report::Alive(alive)),
        encode(&Report::Failed {
            id: 7,
            mover: "m".into(),
            reason: "why".into(),
            is_misfit: true,
        }),
    ];
    for report in reports((1, 2), 3, "host:1", outcome) {
        all.push(encode(&report));
        if let Report::Part(part) = report {
            all.push(part.outcome);
        }
    }
    all
}
