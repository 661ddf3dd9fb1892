//! How a command ends, for whoever started it: the same codes for all commands.

use std::process::ExitCode;

/// How a command ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Exit {
    Equal,
    CouldNotRun,
    Usage,
    Problems,
    Different,
    Changing,
    NoQueue,
    Locked,
    Refused,
    Bug,
    /// A signal asked for the end, by its number.
    Signal(u8),
}

impl Exit {
    /// All codes but those of signals.
    const OF_ITSELF: [Exit; 10] = [
        Exit::Equal,
        Exit::CouldNotRun,
        Exit::Usage,
        Exit::Problems,
        Exit::Different,
        Exit::Changing,
        Exit::NoQueue,
        Exit::Locked,
        Exit::Refused,
        Exit::Bug,
    ];

    /// What the process exits with.
    pub fn code(self) -> u8 {
        match self {
            Exit::Equal => 0,
            Exit::CouldNotRun => 1,
            Exit::Usage => 2,
            Exit::Problems => 3,
            Exit::Different => 4,
            Exit::Changing => 5,
            Exit::NoQueue => 10,
            Exit::Locked => 11,
            Exit::Refused => 13,
            Exit::Bug => 70,
            // As a shell says it of a process that a signal has ended (POSIX, "Exit Status for Commands").
            Exit::Signal(number) => 128 + number,
        }
    }

    fn meaning(self) -> &'static str {
        match self {
            Exit::Equal => "everything of the source is on the replica, and durable; with --delete, and for verify, they are equal",
            Exit::CouldNotRun => "could not run, or had to end",
            Exit::Usage => "wrong usage",
            Exit::Problems => "finished, but some paths have problems",
            Exit::Different => "differences were found",
            Exit::Changing => "finished, but some paths kept changing or vanished",
            Exit::NoQueue => "the movers, or the queue between them, cannot be reached",
            Exit::Locked => "another run is working on the replica, or on the job",
            Exit::Refused => "a guard refused to begin, or to delete",
            Exit::Bug => "a bug",
            Exit::Signal(_) => "ended by signal N, after a clean stop",
        }
    }

    /// All codes and what they mean, for help and manual.
    pub fn table() -> impl Iterator<Item = (String, &'static str)> {
        let of_itself = Exit::OF_ITSELF.into_iter().map(|exit| (exit.code().to_string(), exit.meaning()));
        of_itself.chain([("128+N".to_owned(), Exit::Signal(0).meaning())])
    }
}

impl From<Exit> for ExitCode {
    fn from(exit: Exit) -> ExitCode {
        exit.code().into()
    }
}
