//! Leases on files (fcntl(2), `F_SETLEASE`).

use std::io::{BufRead, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

/// A process that holds a write lease. It ends when this is dropped.
pub struct Lease(Child);

impl Lease {
    /// `answer` is what it does when it is asked to give the lease up (perl, `%SIG`); it runs
    /// through `command`.
    pub fn on(path: &Path, answer: &str, mut command: Command) -> Lease {
        let program = format!(
            r#"open(F, "<", $ARGV[0]) or die; $SIG{{IO}} = {answer}; fcntl(F, 1024, 1) or die; $| = 1; print "held\n"; sleep 600"#
        );
        let mut child = command
            .args(["-e", &program])
            .arg(path)
            .stdout(Stdio::piped())
            .spawn()
            .expect("it starts");
        let mut line = String::new();
        BufReader::new(child.stdout.take().expect("piped"))
            .read_line(&mut line)
            .expect("a line");
        assert_eq!(line, "held\n", "no lease on {}", path.display());
        Lease(child)
    }
}

impl Drop for Lease {
    fn drop(&mut self) {
        let _it_may_have_ended = self.0.kill();
        let _ = self.0.wait();
    }
}
