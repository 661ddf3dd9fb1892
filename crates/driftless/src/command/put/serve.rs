//! The part of `driftless put --on` that runs on the other host. It holds the lock of the draft until
//! its input ends. So a lost connection leaves an unfinished deposit, and never half of one.

use crate::args::PutArgs;
use crate::command::gateway::socket_of;
use crate::command::put::place::{DepositPlace, LocalPlace};
use crate::command::put::wire::{GREETING, PROTOCOL, PutOrder, PutReply, read, write};
use crate::command::reach::Unreached;
use crate::exit::Exit;
use std::ffi::OsStr;
use std::fs::File;
use std::io::{self, BufReader, Write};
use std::os::fd::AsFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};

/// Carries out orders until the input ends.
pub fn run(args: &PutArgs) -> Exit {
    match serve(args) {
        Ok(()) => Exit::Equal,
        Err(error) => {
            eprintln!(
                "driftless: cannot go on: {}",
                driftless_model::cause(&error)
            );
            Exit::CouldNotRun
        }
    }
}

fn serve(args: &PutArgs) -> io::Result<()> {
    // As files: the standard streams of the library look for lines, and there are none.
    let input = File::from(io::stdin().as_fd().try_clone_to_owned()?);
    let mut input = BufReader::new(input);
    let mut output = File::from(io::stdout().as_fd().try_clone_to_owned()?);
    writeln!(output, "{GREETING}{PROTOCOL}")?;
    let mut place = None;
    let mut unwritten = None;
    while let Some(order) = read(&mut input)? {
        if let PutOrder::Data(data) = order {
            // The next order is answered with the error.
            if unwritten.is_none() {
                let written = opened(args, &mut place).and_then(|place| place.write(data));
                unwritten = written.err();
            }
            continue;
        }
        let reply = match unwritten.take() {
            Some(error) => Err(error),
            None => opened(args, &mut place).and_then(|place| carry_out(place, order)),
        };
        let reply = reply.unwrap_or_else(|(code, why)| PutReply::Failed(code.code(), why));
        write(&mut output, &reply)?;
    }
    Ok(())
}

fn opened<'p>(
    args: &PutArgs,
    place: &'p mut Option<LocalPlace>,
) -> Result<&'p mut LocalPlace, Unreached> {
    match place {
        Some(place) => Ok(place),
        none => Ok(none.insert(LocalPlace::open(&socket_of(&args.socket))?)),
    }
}

fn carry_out(place: &mut LocalPlace, order: PutOrder) -> Result<PutReply, Unreached> {
    Ok(match order {
        PutOrder::List => PutReply::Deposits(place.list()?),
        PutOrder::Remove(name) => {
            place.remove(OsStr::from_bytes(&name))?;
            PutReply::Removed
        }
        PutOrder::Begin(request) => {
            PutReply::Draft(place.begin(&request)?.into_os_string().into_vec())
        }
        PutOrder::Commit => PutReply::Placed(place.commit()?),
        PutOrder::Data(_) => return Err((Exit::Bug, "bytes have no reply".into())),
    })
}
