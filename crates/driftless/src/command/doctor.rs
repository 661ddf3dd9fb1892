//! The command `doctor`: measures nodes before a cast.

use crate::args::DoctorArgs;
use crate::command::nodes::{self, ReachedNodes};
use crate::command::reach::Unreached;
use crate::exit::Exit;
use crate::output::{doctor as show, mirror as say};
use crate::signals::{self, Signals};
use driftless_cast::{DoctorSettings, TransferSettings};

/// Measures the nodes; returns the exit code.
pub fn run(args: &DoctorArgs) -> Exit {
    let signals = signals::watch();
    let code = examine(args, &signals).unwrap_or_else(|(code, why)| {
        say::complaint(&why);
        code
    });
    say::final_code(code)
}

fn examine(args: &DoctorArgs, signals: &Signals) -> Result<Exit, Unreached> {
    let settings = settings(args, signals)?;
    let mut report = |health: &driftless_cast::NodeHealth| show::node(health, args.json);
    let measured = driftless_cast::examine(&settings, &mut report, &signals.stop);
    let measured = measured.map_err(|error| {
        let code = Exit::of_cast_error(&error, signals.number());
        (code, error.to_string())
    })?;
    if !args.json {
        show::summary(&measured);
    }
    let is_sound = measured.iter().all(|node| node.faults.is_empty());
    Ok(match (signals.number(), is_sound) {
        (0, true) => Exit::Equal,
        (0, false) => Exit::Problems,
        (signal, _) => Exit::Signal(signal),
    })
}

fn settings(args: &DoctorArgs, signals: &Signals) -> Result<DoctorSettings, Unreached> {
    let place = args.to.as_deref();
    let place = place.map(|path| nodes::place("--to", path)).transpose()?;
    let dir = nodes::cast_dir(None)?;
    let ReachedNodes {
        nodes,
        ssh,
        identity,
        authority_pem,
        warnings,
    } = nodes::nodes(&args.nodes, &dir, signals)?;
    warnings.iter().for_each(|warning| say::complaint(warning));
    Ok(DoctorSettings {
        nodes,
        ssh,
        identity,
        authority_pem,
        place,
        link_time: args.link_time,
        disk_bytes: args.disk_size,
        transfer: TransferSettings {
            connections: args.connections,
            ..TransferSettings::default()
        },
    })
}
