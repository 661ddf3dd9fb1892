//! Tests of mark.

use super::*;

const SCOPE: Scope = Scope {
    source: 7,
    entries: 9,
    whole: false,
};
const DONE: Ending = Ending {
    scope: SCOPE,
    is_flushed: true,
    is_left: false,
    is_complete: true,
    is_all: false,
    filled: None,
    is_clear: true,
};

fn line(sec: i64, run: u128) -> Unsettled {
    Unsettled {
        since: Stamp { sec, nsec: 5 },
        run,
        source: 7,
        entries: 9,
        boot: 3,
        is_left: false,
    }
}

/// What the next pass of a run finds that has begun over these lines.
fn begun(lines: &[Unsettled], own: Unsettled) -> Vec<Unsettled> {
    let mut mark = found(lines);
    mark.begin(own);
    mark.unsettled
}

fn found(lines: &[Unsettled]) -> Mark {
    Mark {
        unsettled: lines.to_vec(),
        ..Mark::new(1)
    }
}

#[test]
fn a_moment_that_is_to_come_is_no_moment() {
    let lines = |mark: &Mark| {
        mark.unsettled
            .iter()
            .map(|line| line.since.sec)
            .collect::<Vec<i64>>()
    };
    let line = |sec| Unsettled {
        since: Stamp { sec, nsec: 0 },
        run: 1,
        source: 2,
        entries: 3,
        boot: 4,
        is_left: false,
    };
    let mut mark = Mark {
        unsettled: vec![line(5), line(90)],
        ..Mark::new(1)
    };
    mark.doubt_what_is_after(Stamp { sec: 50, nsec: 0 });
    assert_eq!(lines(&mark), [5, i64::MIN]);
    assert_eq!(Mark::decode(&mark.encode()), Some(mark.clone()));
    mark.upstream = vec![u128::MAX, 7];
    assert_eq!(Mark::decode(&mark.encode()), Some(mark.clone()));
    mark.put_back_to(Stamp { sec: 3, nsec: 0 });
    assert_eq!(lines(&mark), [3, i64::MIN]);
}

#[test]
fn a_mark_is_read_as_it_was_written_and_keeps_what_it_does_not_understand() {
    let mut mark = found(&[
        line(-1, u128::MAX),
        Unsettled {
            is_left: true,
            source: u64::MAX,
            ..line(2, 0)
        },
    ]);
    mark.movers = Some(12);
    mark.filled = Some(u128::MAX);
    mark.other.push("lease 17 of a later version".into());
    assert_eq!(Mark::decode(&mark.encode()), Some(mark));
    for bad in [
        "",
        "driftless mark 2\n",
        "driftless mark 1\nidentity x\n",
        "driftless mark 1\nidentity 1\nrun 2\nsince 1 2 3\n",
    ] {
        assert_eq!(Mark::decode(bad.as_bytes()), None, "{bad}");
    }
}

#[test]
fn a_mark_fits_into_an_attribute_of_any_file_system() {
    let mut mark = Mark::decode(
        &[
            found(&[]).encode(),
            vec![b'x'; 300],
            vec![b'\n'],
            vec![b'y'; 400],
        ]
        .concat(),
    )
    .expect("a mark");
    (mark.movers, mark.active) = (Some(u128::MAX), Some(i64::MIN));
    (mark.upstream, mark.filled) = (vec![u128::MAX; UPSTREAM_MAX], Some(u128::MAX));
    for run in 0..100 {
        mark.begin(Unsettled {
            since: Stamp {
                sec: i64::MIN,
                nsec: 999_999_999,
            },
            source: run as u64,
            ..line(0, run)
        });
    }
    assert_eq!(mark.unsettled.len(), UNSETTLED_MAX);
    assert!(mark.encode().len() <= 2048);
}

#[test]
fn the_movers_of_an_earlier_run_are_waited_for_by_whoever_comes_next() {
    let cases = [
        (None, None, (false, None)),
        (None, Some(5), (false, Some(5))),
        (Some(5), Some(5), (false, Some(5))),
        (Some(4), Some(5), (true, Some(5))),
        (Some(4), None, (true, Some(SOMEBODY))),
        (Some(SOMEBODY), None, (true, Some(SOMEBODY))),
    ];
    for (before, run, after) in cases {
        let mut mark = Mark {
            movers: before,
            ..Mark::new(1)
        };
        assert_eq!(
            (mark.hand_to(run), mark.movers),
            after,
            "{before:?} {run:?}"
        );
    }
    let mark = Mark {
        movers: Some(4),
        ..Mark::new(1)
    };
    assert_eq!(
        mark.settled(None, (10, 3), &DONE).movers,
        Some(4),
        "who changed nothing did not wait"
    );
    assert_eq!(
        mark.settled(Some(&line(50, 10)), (10, 3), &DONE).movers,
        None
    );
}

#[test]
fn what_is_not_durable_is_suspected_unless_the_kernel_still_has_it() {
    let left = Unsettled {
        is_left: true,
        ..line(1, 20)
    };
    let cases = [
        (vec![], None),
        (vec![line(5, 20), line(4, 21)], Some(4)),
        (vec![left.clone(), line(5, 20)], Some(5)),
        (vec![Unsettled { boot: 2, ..left }], Some(1)),
        (vec![line(5, 10)], None),
        (
            vec![Unsettled {
                boot: 2,
                ..line(5, 10)
            }],
            Some(5),
        ),
        (begun(&[line(5, 20)], line(50, 10)), Some(5)),
        (begun(&[line(5, 10)], line(50, 10)), None),
    ];
    for (lines, expected) in cases {
        assert_eq!(
            found(&lines).suspect_since(10, 3).map(|since| since.sec),
            expected,
            "{lines:?}"
        );
    }
}

/// How a run ends that looks at everything of the source 1.
fn whole(is_all: bool) -> Ending {
    Ending {
        scope: Scope {
            source: 1,
            entries: 2,
            whole: true,
        },
        is_all,
        ..DONE
    }
}

#[test]
fn lines_of_other_sources_are_covered_by_whoever_has_compared_all_there_is() {
    let several = Unsettled {
        source: 0,
        entries: 0,
        run: 0,
        boot: 0,
        ..line(5, 0)
    };
    let choices = Unsettled {
        source: 1,
        entries: 0,
        ..several.clone()
    };
    let part = Ending {
        scope: Scope {
            whole: false,
            ..whole(true).scope
        },
        ..whole(true)
    };
    let cases = [
        (line(5, 20), whole(true), true),
        (line(5, 20), whole(false), false),
        (line(5, 20), part, false),
        (several.clone(), whole(true), true),
        (several.clone(), whole(false), false),
        (
            several.clone(),
            Ending {
                is_complete: false,
                ..whole(true)
            },
            false,
        ),
        (
            several,
            Ending {
                is_flushed: false,
                ..whole(true)
            },
            false,
        ),
        (choices.clone(), whole(false), true),
        (
            choices.clone(),
            Ending {
                is_clear: false,
                ..whole(false)
            },
            false,
        ),
        (
            choices.clone(),
            Ending {
                is_clear: false,
                ..whole(true)
            },
            true,
        ),
        (choices, part, false),
    ];
    for (line, ending, over) in cases {
        let mark = found(std::slice::from_ref(&line)).settled(None, (10, 3), &ending);
        assert_eq!(mark.unsettled.is_empty(), over, "{line:?} {ending:?}");
    }
}

#[test]
fn more_lines_than_a_mark_holds_are_told_as_one_that_some_run_covers() {
    // Choices of one source are told together, and sources only where there is nothing else.
    let of = |source, entries| Unsettled {
        source,
        entries,
        ..line(5, 20)
    };
    let choices: Vec<Unsettled> = (0..20)
        .map(|entries| of(1, entries + 1))
        .chain([of(2, 1)])
        .collect();
    let sources: Vec<Unsettled> = (0..20).map(|source| of(source + 1, 1)).collect();
    for (lines, ending) in [(&choices, whole(false)), (&sources, whole(true))] {
        let mut mark = found(&[]);
        lines.iter().for_each(|line| mark.add(line.clone()));
        assert_eq!(mark.unsettled.len(), UNSETTLED_MAX);
        let left = mark.settled(None, (10, 3), &ending).unsettled;
        assert_eq!(
            left.iter().filter(|line| line.source != 2).count(),
            0,
            "{left:?}"
        );
    }
}

#[test]
fn an_end_settles_what_the_run_has_seen_and_no_more() {
    let (own, old) = (line(50, 10), line(5, 20));
    let other = Unsettled {
        entries: 1,
        ..line(4, 21)
    };
    let left = Ending {
        is_flushed: false,
        is_left: true,
        ..DONE
    };
    let kept = |lines: &[Unsettled], own: Option<&Unsettled>, ending: Ending| -> Vec<(i64, bool)> {
        let mark = found(lines).settled(own, (10, 3), &ending);
        mark.unsettled
            .iter()
            .map(|line| (line.since.sec, line.is_left))
            .collect()
    };
    let lines = [old.clone(), other];
    assert_eq!(kept(&lines, Some(&own), DONE), [(4, false)]);
    let all_of_it = Scope {
        whole: true,
        ..SCOPE
    };
    assert_eq!(
        kept(
            &lines,
            None,
            Ending {
                scope: all_of_it,
                ..DONE
            }
        ),
        []
    );
    assert_eq!(kept(&lines, None, whole(false)), [(5, false), (4, false)]);
    assert_eq!(
        kept(
            &lines,
            Some(&own),
            Ending {
                is_complete: false,
                ..DONE
            }
        ),
        [(5, false), (4, false)]
    );
    assert_eq!(
        kept(
            &[],
            Some(&own),
            Ending {
                is_flushed: false,
                ..DONE
            }
        ),
        [(50, false)]
    );
    assert_eq!(
        kept(
            &lines[..1],
            Some(&own),
            Ending {
                is_flushed: false,
                ..DONE
            }
        ),
        [(5, false)]
    );
    assert_eq!(kept(&lines[..1], Some(&own), left), [(50, true)]);
    // In the boot in which it was left to the kernel, nobody has compared it.
    let earlier = Unsettled {
        is_left: true,
        ..old
    };
    assert_eq!(
        kept(std::slice::from_ref(&earlier), Some(&own), left),
        [(5, true)]
    );
    assert_eq!(kept(std::slice::from_ref(&earlier), None, DONE), []);
    // What the same run did before it lost its connection is durable with its flush, however it
    // ended, and left as the rest of it.
    assert_eq!(kept(&[line(6, 10)], Some(&own), left), [(6, true)]);
    assert_eq!(
        kept(
            &[line(6, 10)],
            None,
            Ending {
                is_complete: false,
                ..DONE
            }
        ),
        []
    );
}

#[test]
fn doubt_of_unlocked_run_outlives_settled_mark() {
    let own = line(7, 3);
    // A second run has found the line of the first, and settles it.
    let told = found(&[own.clone(), line(8, 4)]);
    let mut now = told.clone();
    now.leave_doubt(&own);
    now.leave_doubt(&own);
    assert_eq!(now.unsettled.len(), 3, "left once");
    let mut settled = found(&[]);
    settled.keep_doubt(&told, &now);
    assert_eq!(settled.suspect_since(3, own.boot), Some(own.since));
    let mut untouched = found(&[]);
    untouched.keep_doubt(&told, &told);
    assert_eq!(untouched.unsettled, []);
    // Lines that were there before are the settled run's own decision.
    settled.unsettled.clear();
    settled.keep_doubt(&now, &now);
    assert_eq!(settled.unsettled, []);
}
