//! The end of a connection at which frames go out.

use crate::wire::alive::BEAT;
use crate::wire::compress::ContentCompressor;
use crate::wire::frame::Frame;
use crossbeam_channel::{Receiver, RecvTimeoutError};
use std::io::Write;
use std::time::{Duration, Instant};

/// How long small messages that follow each other wait for those behind them: each that goes out
/// alone costs both hosts several system calls, and their ssh a packet.
const GATHERING: Duration = Duration::from_micros(100);

/// Compresses the data of frames, or does not.
pub struct FrameCompressor(Option<ContentCompressor>);

impl FrameCompressor {
    /// Compresses at a level of zstd; not at all if `None`, or without memory for it.
    pub fn new(level: Option<i32>) -> FrameCompressor {
        FrameCompressor(level.and_then(ContentCompressor::new))
    }

    /// This frame, its data compressed if they get smaller.
    pub fn compress(&mut self, frame: Frame) -> Frame {
        match self
            .0
            .as_mut()
            .and_then(|compressor| compressor.compress(&frame.data))
        {
            Some(compressed) => frame.with_compressed(compressed),
            None => frame,
        }
    }
}

/// Writes frames, and tells the bytes of each that is through, as many as it had before it was
/// compressed; what stands in the buffer goes out when no more wait, and, where many follow each
/// other, not more often than once in [`GATHERING`]. Where there is nothing to say for a while, a
/// `beat` says that this side is there. Reads on when the stream is gone, so that nobody waits for
/// it.
pub fn write_all(
    stream: &mut impl Write,
    (frames, mut compressor): (&Receiver<Frame>, FrameCompressor),
    beat: impl Fn() -> Frame,
    through: impl Fn(u64),
) {
    let (mut whole, mut holds, mut went) = (Ok(()), false, Instant::now());
    loop {
        let wait = if holds {
            GATHERING.saturating_sub(went.elapsed())
        } else {
            BEAT
        };
        match frames.recv_timeout(wait) {
            Ok(frame) => {
                let bytes = frame.bytes();
                whole = whole.and_then(|()| compressor.compress(frame).write(stream));
                through(bytes);
            }
            Err(RecvTimeoutError::Timeout) if holds => {}
            Err(RecvTimeoutError::Timeout) => whole = whole.and_then(|()| beat().write(stream)),
            Err(RecvTimeoutError::Disconnected) => break,
        }
        holds = went.elapsed() < GATHERING;
        if !holds && frames.is_empty() {
            whole = whole.and_then(|()| stream.flush());
            went = Instant::now();
        }
    }
    let _it_was_written_or_the_line_is_gone = stream.flush();
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::wire::Request;

    #[test]
    fn a_frame_whose_data_are_compressed_says_so_and_gives_them_back() {
        let frame =
            |data: &[u8]| Frame::new(7, &Request::Write { file: 1, offset: 0 }, data.to_vec());
        let words = b"words ".repeat(9999);
        let compressed = FrameCompressor::new(Some(1)).compress(frame(&words));
        assert!(compressed.is_compressed() && compressed.data.len() < words.len());
        assert_eq!(
            (compressed.number(), compressed.data_bytes()),
            (7, words.len() as u64)
        );
        assert_eq!(compressed.into_data().expect("it was made here"), words);
        assert!(
            !FrameCompressor::new(Some(1))
                .compress(frame(b"short"))
                .is_compressed()
        );
        assert!(
            !FrameCompressor::new(None)
                .compress(frame(&words))
                .is_compressed(),
            "nobody asked for it"
        );
    }
}
