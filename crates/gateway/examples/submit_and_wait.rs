//! Deposits some bytes, submits a job that reads them, and waits for its results.
//!
//! `submit_and_wait SOCKET RESULTS COMMAND...`, for example
//! `submit_and_wait /run/driftless/gateway.sock /home/alice/out/%j sbatch job.sh`. Tasks find the
//! bytes in `$SPOOL_DIRECTORY/numbers`.

use driftless_gateway::{GatewayClient, JobSubmission};
use std::error::Error;
use std::ffi::{OsStr, OsString};
use std::io::Write;

/// Name of the deposit.
const NAME: &str = "numbers";

fn main() -> Result<(), Box<dyn Error>> {
    let mut arguments = std::env::args_os().skip(1);
    let usage = "usage: submit_and_wait SOCKET RESULTS COMMAND...";
    let socket = arguments.next().ok_or(usage)?;
    let results = arguments.next().ok_or(usage)?;
    let command: Vec<OsString> = arguments.collect();
    let gateway = GatewayClient::at(socket);

    // The deposit appears complete, or not at all.
    let draft = gateway.deposits()?.draft(OsStr::new(NAME), None)?;
    draft.create_file()?.write_all(b"1\n2\n3\n")?;
    let data = draft.commit(true)?.path;

    let job = JobSubmission::new(command)
        .with_data(&data)
        .with_results(results);
    let submitted = gateway.submit(&job)?;
    println!("submitted {}", submitted.job);

    let job = gateway.wait(&submitted.job, &|| false)?;
    let job = job.ok_or("the gateway lost the job")?;
    for one in &job.results {
        println!("{}: {} entries, {} bytes", one.node, one.entries, one.bytes);
        if let Some(fault) = &one.fault {
            return Err(fault.clone().into());
        }
    }
    gateway.deposits()?.remove(OsStr::new(NAME))?;
    println!("done");
    Ok(())
}
