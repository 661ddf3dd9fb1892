//! Since when processes of this host run, for the messages that say who has a lock. Of a locked
//! byte the kernel tells only which process has it (fcntl(2)); a run takes its lock when it begins,
//! so the start of the process is told instead.

use driftless_lock::Mutex;
use rustix::fs::{self, Mode, OFlags};
use rustix::time::{ClockId, clock_gettime};
use std::collections::BTreeMap;
use std::sync::MutexGuard;

/// When processes were started, by their numbers: this process may not be able to ask for that
/// later.
static REMEMBERED: Mutex<BTreeMap<u32, i64>> = Mutex::new(BTreeMap::new());

/// When a process was started, in seconds since 1970, as far as that can be told.
pub fn started(process: u32) -> Option<i64> {
    ask(process).or_else(|| remembered().get(&process).copied())
}

/// Keeps when a process was started, for the time after this process has confined itself.
pub fn remember(process: u32) {
    let at = ask(process);
    remembered().extend(at.map(|at| (process, at)));
}

fn remembered() -> MutexGuard<'static, BTreeMap<u32, i64>> {
    REMEMBERED.lock()
}

/// What the kernel tells (proc_pid_stat(5)).
fn ask(process: u32) -> Option<i64> {
    let mut text = [0; 1024];
    let file = fs::openat(
        fs::CWD,
        format!("/proc/{process}/stat"),
        OFlags::RDONLY | OFlags::CLOEXEC,
        Mode::empty(),
    )
    .ok()?;
    let got = rustix::io::read(&file, &mut text).ok()?;
    let seconds = |clock| clock_gettime(clock).tv_sec;
    Some(seconds(ClockId::Realtime) - seconds(ClockId::Boottime) + after_boot(&text[..got])?)
}

/// Seconds between the start of the machine and that of the process.
fn after_boot(stat: &[u8]) -> Option<i64> {
    /// Ticks of a second, as the kernel tells them to user space (time(7), `USER_HZ`).
    const TICKS: i64 = 100;
    /// Where `starttime` stands among the fields after the name, which ends at the last bracket.
    const FIELD: usize = 19;
    let name_end = stat.iter().rposition(|byte| *byte == b')')?;
    let ticks: i64 = std::str::from_utf8(&stat[name_end + 1..])
        .ok()?
        .split_whitespace()
        .nth(FIELD)?
        .parse()
        .ok()?;
    Some(ticks / TICKS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_process_was_started_a_short_while_ago() {
        let now = clock_gettime(ClockId::Realtime).tv_sec;
        let at = started(std::process::id()).unwrap();
        assert!(at <= now + 1 && at > now - 86_400, "{at}, and it is {now}");
        assert_eq!(started(0), None);
    }

    #[test]
    fn a_name_may_hold_brackets_and_spaces() {
        let stat = b"17 (a) b (\xff) S 1 17 17 0 -1 4194560 1 0 0 0 0 0 0 0 20 0 1 0 12345 2 3\n";
        assert_eq!(after_boot(stat), Some(123));
        assert_eq!(after_boot(b"17 (a) S 1"), None);
    }
}
