//! A terminal for a command, on machines that have none to give, too.

use std::process::Command;

/// A line of sh(1) with a new terminal (pty(7), script(1)): what is written to the standard input
/// of the command is typed there, and what the terminal shows is its standard output. It ends with
/// the line's exit code. The file system that terminals come from (devpts) is mounted for it alone
/// where there is none.
pub fn on_terminal(line: &str) -> Command {
    const IN_A_NAMESPACE: &str = "[ -e /dev/pts/ptmx ] || \
        mount -t devpts -o ptmxmode=0666 devpts /dev/pts || exit; \
        exec script -qec \"$0\" /dev/null";
    let mut command = Command::new("unshare");
    command.args(["--mount", "sh", "-c", IN_A_NAMESPACE, line]);
    command
}

#[cfg(test)]
mod tests {
    use super::on_terminal;
    use std::process::Command;

    #[test]
    fn a_command_has_a_terminal_and_its_exit_code_comes_back() {
        let done = on_terminal("test -t 0 && test -t 1 && echo shown; exit 3")
            .output()
            .expect("unshare");
        let shown = String::from_utf8_lossy(&done.stdout);
        assert_eq!((shown.trim(), done.status.code()), ("shown", Some(3)));
    }

    #[test]
    fn a_machine_without_terminals_has_one_all_the_same() {
        let line = "while umount -l /dev/pts 2>/dev/null; do :; done; [ -e /dev/pts/ptmx ] && exit 2; exec \"$0\" \"$@\"";
        let inner = on_terminal("test -t 0");
        let status = Command::new("unshare")
            .args(["--mount", "sh", "-c", line])
            .arg(inner.get_program())
            .args(inner.get_args())
            .status()
            .expect("unshare");
        assert!(status.success(), "{status}");
    }
}
