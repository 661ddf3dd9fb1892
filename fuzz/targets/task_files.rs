//! Task files: values that were read are written and read again as the same, and an error fits on a
//! line.
#![no_main]

use driftless_fuzz::{begin, bounded};
use driftless_taskfile::{Cleanup, ParameterRange, TaskFile, WorkloadManager};
use libfuzzer_sys::fuzz_target;
use std::os::unix::ffi::OsStrExt;

fuzz_target!(init: begin(seeds()), |bytes: &[u8]| {
    bounded(bytes.len(), || match TaskFile::parse(bytes) {
        Ok(file) => {
            let text = render(&file);
            let read = TaskFile::parse(&text).expect("what was written is read");
            assert_eq!(read, file, "{}", String::from_utf8_lossy(&text));
        }
        Err(error) => {
            assert!(error.line > 0 && error.column > 0);
            assert!(!error.to_string().contains(char::is_control));
        }
    });
});

fn quoted(value: &[u8]) -> Vec<u8> {
    let escaped = value.iter().flat_map(|byte| match byte {
        b'"' => &b"\\\""[..],
        b'\\' => b"\\\\",
        byte => std::slice::from_ref(byte),
    });
    let inner: Vec<u8> = escaped.copied().collect();
    [b" \"", &inner[..], b"\""].concat()
}

fn render(file: &TaskFile) -> Vec<u8> {
    let system = match file.system {
        WorkloadManager::GridEngine => "SGE",
        WorkloadManager::Slurm => "SLURM",
        WorkloadManager::Pbs => "PBS",
        WorkloadManager::Torque => "TORQUE",
    };
    let mut text = format!("WLM{{WLM_SYSTEM={system};OPTIONS=").into_bytes();
    text.extend(quoted(shell_words::join(&file.options).as_bytes()));
    text.extend(b";}DATA{");
    for data in &file.data {
        let path = data.path.as_os_str().as_bytes();
        text.extend(b"TRANSFER ");
        if data.is_glob {
            text.extend(path);
        } else {
            text.extend(quoted(path));
        }
        text.push(b';');
    }
    text.extend(b"}EXECUTE{DO");
    text.extend(quoted(file.script.as_os_str().as_bytes()));
    for argument in &file.arguments {
        text.extend(quoted(argument.as_bytes()));
    }
    text.extend(file.parameters.map(range).unwrap_or_default());
    text.extend(b";}CLEANUP{");
    text.extend(
        match file.cleanup {
            Cleanup::PurgeAll => "PURGEALL;}".to_owned(),
            Cleanup::Keep => "KEEP;}".to_owned(),
            Cleanup::KeepFor(time) => format!("KEEP {}s;}}", time.as_secs()),
        }
        .bytes(),
    );
    if let Some(results) = &file.results {
        // A file has no zero byte, so a zero byte marks a placeholder.
        let marked = results.expand("\0j", "\0t", "\0h");
        let pattern = marked.iter().flat_map(|byte| match byte {
            b'%' => &b"%%"[..],
            0 => b"%",
            byte => std::slice::from_ref(byte),
        });
        text.extend(b"RESULTS{COLLECT TO");
        text.extend(quoted(&pattern.copied().collect::<Vec<u8>>()));
        text.extend(b";}");
    }
    text
}

fn range(range: ParameterRange) -> Vec<u8> {
    let ParameterRange {
        start, stop, step, ..
    } = range;
    let tasks = range.tasks_at_once_max;
    let tasks = tasks.map(|tasks| format!("%{tasks}")).unwrap_or_default();
    format!(" parms=[{start}:{stop};{step}]{tasks}").into_bytes()
}

fn seeds() -> Vec<Vec<u8>> {
    let own = "# Task\nWLM { WLM_SYSTEM = SLURM; OPTIONS = \"--time=1 -J 'a b'\"; }\n\
               DATA { TRANSFER \"/my data\"; TRANSFER /nr/*.p?; }\n\
               EXECUTE { DO run.sh \"a b\" c parms=[0:20;2]%4; }\n\
               RESULTS { COLLECT TO \"out/%j/%t-%h%%\"; } CLEANUP { KEEP 7d; }";
    let example = include_bytes!("../../crates/taskfile/tests/files/example.tdf");
    vec![
        example.to_vec(),
        own.as_bytes().to_vec(),
        b"WLM { WLM_SYSTEM".to_vec(),
    ]
}
