//! The command `agent`: serves a driftless on another host, within what whoever starts it lets
//! clients do.
//!
//! Where a key has a command of its own (sshd(8), "AUTHORIZED_KEYS FILE FORMAT"), that is started,
//! and what the client wanted to start stands in the environment. What it asked the agent for is
//! taken from there; its limits are no client's to choose.

use crate::args::{AgentArgs, AskedArgs};
use crate::exit::Exit;
use crate::own;
use clap::Parser;
use driftless_remote::{Limits, May, Service};
use std::ffi::OsStr;
use std::fs::File;
use std::io;
use std::os::fd::AsFd;
use std::os::unix::ffi::OsStrExt;

/// What a client wanted to start, where a key has a command of its own (ssh(1), "ENVIRONMENT").
const WANTED: &str = "SSH_ORIGINAL_COMMAND";

/// Serves another host until it hangs up; or, as a further connection of that host's client, hands
/// itself over to the agent that runs already.
pub fn run(args: &AgentArgs) -> Exit {
    let served =
        asked(args, std::env::var_os(WANTED).as_deref()).and_then(|asked| match &asked.join {
            Some(place) => {
                let cause = |error: io::Error| driftless_model::cause(&error);
                driftless_remote::join(place, &limits(args))
                    .map_err(|error| format!("cannot join the agent: {}", cause(error)))
            }
            None => serve(args, &asked).map_err(|error| error.to_string()),
        });
    match served {
        Ok(()) => Exit::Equal,
        Err(error) => {
            eprintln!("driftless agent: {error}");
            Exit::CouldNotRun
        }
    }
}

fn serve(args: &AgentArgs, asked: &AskedArgs) -> io::Result<()> {
    // In place of the agents that were started for the same run.
    asked
        .again
        .iter()
        .for_each(|token| driftless_remote::end_earlier(token));
    own::give_up_umask();
    let (directories_max, _) = driftless_pool::descriptors();
    let service = Service {
        directories_max,
        compress: asked.compress,
        limits: limits(args),
        without_kernel: args.without_landlock,
    };
    // As files: the standard streams of the library look for lines, and there are none.
    let (input, output) = (
        io::stdin().as_fd().try_clone_to_owned()?,
        io::stdout().as_fd().try_clone_to_owned()?,
    );
    driftless_remote::serve(File::from(input), File::from(output), service)
}

fn limits(args: &AgentArgs) -> Limits {
    let may = match (args.read_only, args.no_delete) {
        (true, _) => May::Read,
        (false, true) => May::Keep,
        (false, false) => May::Everything,
    };
    Limits {
        only: args
            .only
            .iter()
            .map(|path| path.as_os_str().as_bytes().to_vec())
            .collect(),
        may,
    }
}

/// What the client asks for: what the agent was started with says it, or else what the client
/// wanted to start.
fn asked(args: &AgentArgs, wanted: Option<&OsStr>) -> Result<AskedArgs, String> {
    match wanted {
        Some(wanted) if args.asked == AskedArgs::default() => asked_in(&wanted.to_string_lossy()),
        _ => Ok(args.asked.clone()),
    }
}

/// The words behind `agent`.
#[derive(Parser)]
#[command(no_binary_name = true, disable_help_flag = true)]
struct Asked {
    #[command(flatten)]
    asked: AskedArgs,
}

fn asked_in(wanted: &str) -> Result<AskedArgs, String> {
    let refused = || {
        format!(
            "this login serves trees (driftless agent) and starts nothing else, such as \"{wanted}\""
        )
    };
    let words = shell_words::split(wanted).map_err(|_| refused())?;
    let agent = words
        .iter()
        .position(|word| word == "agent")
        .ok_or_else(refused)?;
    let asked = Asked::try_parse_from(&words[agent + 1..]).map_err(|_| refused())?;
    Ok(asked.asked)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_client_asks_for_is_found_in_what_it_wanted_to_start() {
        let token = |token: &str| AskedArgs {
            run: Some(token.into()),
            ..AskedArgs::default()
        };
        let cases = [
            ("driftless agent --run 12", Some(token("12"))),
            (
                "sudo -n '/opt/my driftless' agent --run 12",
                Some(token("12")),
            ),
            (
                "driftless agent --compress=3 --run 12",
                Some(AskedArgs {
                    compress: Some(3),
                    ..token("12")
                }),
            ),
            (
                "driftless agent --join 'a b'",
                Some(AskedArgs {
                    join: Some("a b".into()),
                    ..AskedArgs::default()
                }),
            ),
            ("driftless agent", Some(AskedArgs::default())),
            ("driftless agent --only /", None),
            ("driftless agent --run 12; rm -rf /", None),
            ("driftless mover --stdio", None),
            ("sh -s -- 0.1.0", None),
            ("'", None),
            ("", None),
        ];
        for (wanted, expected) in cases {
            assert_eq!(asked_in(wanted).ok(), expected, "{wanted}");
        }
    }
}
