//! Programs that tests write: scripts in the place of commands.

use std::path::Path;
use std::process::Command;

/// Writes a script, whose first line names its interpreter, as a program that all users may run.
///
/// Another process writes it. A process that another thread starts meanwhile inherits the files that
/// this process has open for writing, and execve(2) refuses such a file (ETXTBSY).
///
/// # Panics
/// Panics if the script cannot be written.
pub fn write_program(path: &Path, text: &str) {
    let written = Command::new("sh")
        .args(["-c", "printf %s \"$1\" >\"$0\" && chmod 755 \"$0\""])
        .args([path.as_os_str(), text.as_ref()])
        .status();
    assert!(written.expect("sh starts").success(), "{}", path.display());
}

#[cfg(test)]
mod tests {
    use super::write_program;
    use std::process::Command;
    use std::thread;

    #[test]
    fn programs_run_beside_threads_that_start_others() {
        let folder = tempfile::tempdir().unwrap();
        let run = |number: usize| {
            for round in 0..20 {
                let path = folder.path().join(format!("{number}-{round}"));
                write_program(&path, "#!/bin/sh\nexit 7\n");
                assert_eq!(Command::new(path).status().unwrap().code(), Some(7));
            }
        };
        thread::scope(|scope| {
            for number in 0..4 {
                scope.spawn(move || run(number));
            }
        });
    }
}
