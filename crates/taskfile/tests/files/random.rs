//! Files at random: a rendered file is read as the same values, and arbitrary bytes end in values
//! or in an error, never in a panic. `DRIFTLESS_SEEDS` sets the number of seeds.

use crate::render::render;
use driftless_taskfile::{
    Cleanup, DataPath, ParameterRange, ResultPattern, TaskFile, TaskFileError, WorkloadManager,
};
use fastrand::Rng;
use std::ffi::OsString;
use std::num::NonZeroU32;
use std::os::unix::ffi::OsStringExt;
use std::time::Duration;

const SEEDS: u64 = 5_000;

/// Parts of names that a grammar may take for something else.
const PARTS: [&[u8]; 30] = [
    b"a",
    b"data",
    b"DO",
    b"Keep",
    b"TRANSFER",
    b"parms",
    b"parms=",
    b"params=[1:2;3]",
    b"=",
    b"[",
    b"]",
    b"*",
    b"?",
    b";",
    b"{",
    b"}",
    b"#",
    b" ",
    b"\t",
    b"\n",
    b"\r\n",
    b"\"",
    b"\\",
    b"%",
    b"/",
    b"\xff",
    b"\xc3\xa9",
    b"\xe2\x80\xae",
    b"\x1b",
    b"\xef\xbb\xbf",
];

fn seeds() -> impl Iterator<Item = (u64, Rng)> {
    let count = std::env::var("DRIFTLESS_SEEDS").ok();
    let count = count.and_then(|count| count.parse().ok()).unwrap_or(SEEDS);
    (0..count).map(|seed| (seed, Rng::with_seed(seed)))
}

/// Returns bytes that may be empty.
fn bytes(rng: &mut Rng) -> Vec<u8> {
    let parts = 0..rng.usize(..6);
    parts
        .flat_map(|_| PARTS[rng.usize(..PARTS.len())])
        .copied()
        .collect()
}

fn name(rng: &mut Rng) -> OsString {
    let mut name = bytes(rng);
    if name.is_empty() {
        name.push(b'x');
    }
    OsString::from_vec(name)
}

fn data_path(rng: &mut Rng) -> DataPath {
    if rng.bool() {
        return DataPath {
            path: name(rng).into(),
            is_glob: false,
        };
    }
    let parts = ["*", "?", "[0-9]", "/", "nr", ".", "#", "\\", "\u{e9}", "]"];
    let glob: String = (0..rng.usize(..6))
        .map(|_| parts[rng.usize(..parts.len())])
        .collect();
    DataPath {
        path: format!("/{glob}*").into(),
        is_glob: true,
    }
}

fn range(rng: &mut Rng) -> ParameterRange {
    let below = [3, 1000, u32::MAX][rng.usize(..3)];
    let stop = rng.u32(..=below);
    ParameterRange {
        start: rng.u32(..=stop),
        stop,
        step: NonZeroU32::new(rng.u32(1..)).unwrap_or(NonZeroU32::MIN),
        tasks_at_once_max: NonZeroU32::new(rng.u32(..3)),
    }
}

fn cleanup(rng: &mut Rng) -> Cleanup {
    match rng.u8(..3) {
        0 => Cleanup::PurgeAll,
        1 => Cleanup::Keep,
        _ => Cleanup::KeepFor(Duration::from_secs(
            rng.u64(1..200) * [1, 60, 86_400][rng.usize(..3)],
        )),
    }
}

/// Returns the text of a pattern.
pub fn pattern(rng: &mut Rng) -> Vec<u8> {
    let part = |rng: &mut Rng| match rng.u8(..5) {
        0 => b"%j".to_vec(),
        1 => b"%t".to_vec(),
        2 => b"%h".to_vec(),
        3 => b"%%".to_vec(),
        _ => bytes(rng)
            .into_iter()
            .filter(|byte| *byte != b'%')
            .collect(),
    };
    let parts: Vec<u8> = (0..rng.usize(..6)).flat_map(|_| part(rng)).collect();
    [b"r", &parts[..]].concat()
}

/// Returns a task file, and the text of its pattern.
fn task_file(rng: &mut Rng) -> (TaskFile, Vec<u8>) {
    use WorkloadManager::{GridEngine, Pbs, Slurm, Torque};
    let pattern = pattern(rng);
    let results = ResultPattern::parse(&pattern).expect("a pattern");
    let option = |rng: &mut Rng| String::from_utf8_lossy(&bytes(rng)).into_owned();
    let file = TaskFile {
        system: [GridEngine, Slurm, Pbs, Torque][rng.usize(..4)],
        options: (0..rng.usize(..4)).map(|_| option(rng)).collect(),
        data: (0..rng.usize(1..5)).map(|_| data_path(rng)).collect(),
        script: name(rng).into(),
        arguments: (0..rng.usize(..4))
            .map(|_| OsString::from_vec(bytes(rng)))
            .collect(),
        parameters: rng.bool().then(|| range(rng)),
        results: rng.bool().then_some(results),
        cleanup: cleanup(rng),
    };
    (file, pattern)
}

fn check_error(error: &TaskFileError, text: &[u8], seed: u64) {
    let lines: Vec<&[u8]> = text.split(|byte| *byte == b'\n').collect();
    let message = error.to_string();
    assert!(
        !message.contains(char::is_control),
        "seed {seed}: {message:?}"
    );
    assert!(!message.contains('\u{202e}'), "seed {seed}: {message:?}");
    let line = lines.get(error.line - 1);
    let line = line.unwrap_or_else(|| panic!("seed {seed}: no such line: {message}"));
    let columns = String::from_utf8_lossy(line).chars().count() + 1;
    assert!(
        (1..=columns).contains(&error.column),
        "seed {seed}: {message}"
    );
}

#[test]
fn rendered_files_are_read_as_the_same() {
    for (seed, mut rng) in seeds() {
        let (file, pattern) = task_file(&mut rng);
        let text = render(&file, &pattern, &mut rng);
        let shown = String::from_utf8_lossy(&text);
        let parsed =
            TaskFile::parse(&text).unwrap_or_else(|error| panic!("seed {seed}: {error}\n{shown}"));
        assert_eq!(parsed, file, "seed {seed}:\n{shown}");
    }
}

#[test]
fn damaged_files_end_in_an_error() {
    let mut errors = 0;
    for (seed, mut rng) in seeds() {
        let (file, pattern) = task_file(&mut rng);
        let mut text = render(&file, &pattern, &mut rng);
        for _ in 0..rng.usize(1..4) {
            let at = rng.usize(..text.len());
            let end = (at + rng.usize(..4)).min(text.len());
            let part = PARTS[rng.usize(..PARTS.len())].iter().copied();
            text.splice(at..end, part.take(rng.usize(..4)));
        }
        // A damaged comment or name is no error.
        if let Err(error) = TaskFile::parse(&text) {
            check_error(&error, &text, seed);
            errors += 1;
        }
    }
    assert!(errors > 0, "no damage was found");
}

#[test]
fn arbitrary_bytes_end_in_an_error() {
    let words: Vec<&[u8]> =
        "WLM DATA EXECUTE RESULTS CLEANUP WLM_SYSTEM OPTIONS SGE TO COLLECT KEEP PURGEALL 7d"
            .split(' ')
            .map(str::as_bytes)
            .chain(PARTS)
            .collect();
    for (seed, mut rng) in seeds() {
        let mut text = Vec::new();
        for _ in 0..rng.usize(..40) {
            match rng.u8(..8) {
                0 => text.push(rng.u8(..)),
                _ => text.extend_from_slice(words[rng.usize(..words.len())]),
            }
        }
        if let Err(error) = TaskFile::parse(&text) {
            check_error(&error, &text, seed);
        }
    }
}
