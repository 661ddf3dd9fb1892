//! Pages of the project, their tables and the words in backticks.

use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

/// The binary.
pub const BINARY: &str = env!("CARGO_BIN_EXE_driftless");

/// The root of the project.
pub fn project() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../..")
        .canonicalize()
        .expect("the workspace")
}

/// The text of a page.
pub fn read(name: &str) -> String {
    fs::read_to_string(project().join(name)).unwrap_or_else(|e| panic!("{name}: {e}"))
}

/// The rows of the Markdown tables below `heading`, up to the next heading of any level; cells
/// without their padding.
pub fn rows<'a>(text: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let lines = text
        .lines()
        .skip_while(|line| *line != heading)
        .skip(1)
        .take_while(|line| !line.starts_with('#'));
    let cells = |line: &'a str| {
        line.trim_matches('|')
            .split(" | ")
            .map(|cell| cell.trim_matches(['|', ' ']))
            .collect::<Vec<_>>()
    };
    let rows: Vec<Vec<&str>> = lines
        .filter(|line| line.starts_with("| `"))
        .map(cells)
        .collect();
    assert!(!rows.is_empty(), "no table below {heading}");
    rows
}

/// The words in backticks.
pub fn quoted(cell: &str) -> Vec<String> {
    cell.split('`')
        .skip(1)
        .step_by(2)
        .map(str::to_owned)
        .collect()
}

/// A folder for one example, with the binary first on the search path.
pub struct Shell {
    /// Where its commands begin.
    pub folder: tempfile::TempDir,
}

impl Shell {
    pub fn new() -> Shell {
        Shell {
            folder: tempfile::tempdir().expect("a folder"),
        }
    }

    /// Puts the program and an empty library into `built`, as a build leaves them.
    pub fn put_built(&self) {
        let built = self.folder.path().join("built");
        std::fs::create_dir(&built).expect("a folder");
        std::os::unix::fs::symlink(BINARY, built.join("driftless")).expect("a link");
        std::fs::write(built.join("libdriftless_shim.so"), "").expect("a file");
    }

    pub fn bash(&self, script: &str) -> Output {
        let own = Path::new(BINARY)
            .parent()
            .expect("a folder")
            .as_os_str()
            .to_owned();
        let path = [own, std::env::var_os("PATH").unwrap_or_default()].join(&OsString::from(":"));
        let mut command = Command::new("bash");
        command
            .args(["-c", &format!("exec 2>&1\n{script}")])
            .current_dir(self.folder.path());
        command
            .env("PATH", path)
            .env("LC_ALL", "C.UTF-8")
            .stdin(Stdio::null());
        command.output().expect("bash starts")
    }
}
