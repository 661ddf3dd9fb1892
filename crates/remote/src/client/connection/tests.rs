//! Tests of connection.

use super::*;
use crossbeam_channel::unbounded;
use driftless_tree::WHOLE_BYTES_MAX;

fn fetch() -> Request {
    Request::Fetch {
        dir: 1,
        name: c"name".into(),
        keep: driftless_model::Keep::default(),
    }
}

fn whole(number: u64, bytes: u64) -> Frame {
    Frame::new(number, &Reply::Whole(None), vec![0; bytes as usize])
}

#[test]
fn no_more_is_posted_than_there_is_room_for_all_answers() {
    let (out, frames) = unbounded();
    let connection: Connection<()> = Connection::new(out);
    let post = |token| connection.submit(token, (&fetch(), Vec::new()), false, Box::new(|_| ()));
    let under_way = SUBMITTED_BYTES_MAX / (SUBMISSION_BYTES + WHOLE_BYTES_MAX);
    (0..under_way).for_each(post);
    let numbers: Vec<u64> = frames.try_iter().map(|frame| frame.number()).collect();
    assert_eq!(numbers.len() as u64, under_way);
    std::thread::scope(|scope| {
        scope.spawn(|| post(under_way));
        assert!(
            frames.recv_timeout(Duration::from_millis(200)).is_err(),
            "each may be answered with a whole file"
        );
        // Most answers are small, and what they do not need is given back before anybody takes
        // them.
        numbers
            .iter()
            .for_each(|number| assert_eq!(connection.arrived(whole(*number, 1000)), Ok(())));
        assert!(frames.recv().is_ok(), "there is room again");
    });
}

#[test]
fn what_was_opened_counts_and_not_what_crossed_the_line() {
    let (out, frames) = unbounded();
    let connection: Connection<()> = Connection::new(out);
    connection.submit(1, (&fetch(), Vec::new()), false, Box::new(|_| ()));
    let sent = frames.recv().expect("it was submitted");
    let number = sent.number();
    let compressed =
        crate::wire::send::FrameCompressor::new(Some(1)).compress(whole(number, WHOLE_BYTES_MAX));
    assert!(compressed.is_compressed() && compressed.data_bytes() == WHOLE_BYTES_MAX);
    assert_eq!(connection.arrived(compressed), Ok(()));
    let answered: u64 = connection
        .completions
        .lock()
        .iter()
        .map(|answered| answered.bytes)
        .sum();
    assert_eq!(answered, SUBMISSION_BYTES + sent.bytes() + WHOLE_BYTES_MAX);
}

#[test]
fn an_answer_that_is_larger_than_any_may_be_is_not_kept() {
    for (bytes, compress) in [
        (WHOLE_BYTES_MAX + 1, None),
        (4 << 20, None),
        (4 << 20, Some(1)),
    ] {
        let (out, frames) = unbounded();
        let connection: Connection<bool> = Connection::new(out);
        connection.submit(
            1,
            (&fetch(), Vec::new()),
            false,
            Box::new(|reply| reply.is_ok()),
        );
        let number = frames.recv().expect("it was submitted").number();
        let answer =
            crate::wire::send::FrameCompressor::new(compress).compress(whole(number, bytes));
        let Err(why) = connection.arrived(answer) else {
            panic!("{bytes}")
        };
        connection.lose(Loss {
            why: why.into(),
            is_mendable: false,
        });
        assert_eq!(connection.next_completions(Duration::ZERO), [(1, false)]);
    }
}
