//! The command `ftps` in a program with the feature of this name: from arguments to a server that runs
//! until a signal ends it, and to the sessions that the server starts.

#[cfg(feature = "ftps")]
mod pam;

use crate::args::FtpsArgs;
use crate::exit::Exit;
use crate::output::mirror as say;

/// Refusal of a program without the feature.
#[cfg(not(feature = "ftps"))]
const WITHOUT: &str = "this program was built without FTPS; install the package of libpam for developers (Debian: libpam0g-dev), and build it with \"cargo build --release --features driftless/ftps\"";

/// Runs the server or a session; returns the exit code.
#[cfg(not(feature = "ftps"))]
pub fn run(_: &FtpsArgs) -> Exit {
    say::refusal(Exit::CouldNotRun, WITHOUT);
    say::final_code(Exit::CouldNotRun)
}

#[cfg(feature = "ftps")]
pub use served::run;

#[cfg(feature = "ftps")]
mod served {
    use super::pam::PamCheck;
    use super::{Exit, FtpsArgs, say};
    use crate::command::reach::Unreached;
    use crate::command::site::usage;
    use crate::output::diagnostics;
    use crate::signals::{self, Signals};
    use crate::{own, service};
    use driftless_ftps::{
        ClientKeys, FtpsServer, FtpsSettings, LoginLimits, PasswordCheck, ServerProcess,
        run_session,
    };
    use driftless_model::cause;
    use std::os::fd::IntoRawFd;
    use std::path::Path;
    use std::sync::Arc;
    use std::time::Duration;

    /// Connections of one address without a login.
    const STRANGERS_MAX: usize = 8;
    /// Lowest number of the handle of this program.
    const HELD_FROM: i32 = 100;
    /// This program, also after another version has replaced its file (proc(5), `/proc/PID/exe`).
    const OWN_PROGRAM: &str = "/proc/self/exe";

    pub fn run(args: &FtpsArgs) -> Exit {
        own::give_up_umask();
        diagnostics::start("ftps", &args.log);
        let signals = signals::watch();
        let code = match args.session {
            true => serve_client(args, &signals),
            false => serve(args, &signals),
        };
        let code = code.unwrap_or_else(|(code, why)| {
            say::complaint(&why);
            code
        });
        match args.session {
            // Its standard output is the socket to the server.
            true => code,
            false => say::final_code(code),
        }
    }

    fn serve(args: &FtpsArgs, signals: &Signals) -> Result<Exit, Unreached> {
        if !rustix::process::geteuid().is_root() {
            return Err(usage(
                "ftps must run as root: it starts a process for each user",
            ));
        }
        let process = ServerProcess {
            program: OWN_PROGRAM.into(),
            arguments: std::env::args_os()
                .skip(1)
                .chain(["--session".into()])
                .collect(),
        };
        let server = FtpsServer::start(&settings(args)?, process).map_err(failed)?;
        let addresses = server
            .addresses()
            .map_err(|error| (Exit::CouldNotRun, cause(&error)))?;
        for address in addresses {
            tracing::info!("listens on {address}");
        }
        let service = service::begin(ServedFtps, signals.stop.clone());
        server.run(&signals.stop);
        service::end(&signals.stop, service);
        Ok(Exit::of_mover(signals.number()))
    }

    fn serve_client(args: &FtpsArgs, signals: &Signals) -> Result<Exit, Unreached> {
        let check = |service: &String| Arc::new(PamCheck::new(service)) as Arc<dyn PasswordCheck>;
        let password = args.pam.as_ref().map(check);
        run_session(settings(args)?, password, &signals.stop).map_err(failed)?;
        Ok(Exit::Equal)
    }

    fn failed(error: driftless_ftps::Error) -> Unreached {
        (Exit::CouldNotRun, error.to_string())
    }

    /// State of the server for the service manager. The server has no turns that could be missed.
    struct ServedFtps;

    impl service::Served for ServedFtps {
        fn idle(&self) -> Duration {
            Duration::ZERO
        }

        fn words(&self) -> Option<String> {
            None
        }
    }

    fn settings(args: &FtpsArgs) -> Result<FtpsSettings, Unreached> {
        if let Some(service) = args.pam.as_deref().filter(|name| !is_service(name)) {
            return Err(usage(&format!(
                "--pam: no file /etc/pam.d/{service}; write it first: PAM would take the rules of \"other\""
            )));
        }
        let absolute = |path: &Path| {
            let failed = |error| (Exit::CouldNotRun, cause(&error));
            std::path::absolute(path).map_err(failed)
        };
        let keys = args.client_authority.clone().zip(args.client_users.clone());
        Ok(FtpsSettings {
            listen: args.listen.clone(),
            passive_ports: args.passive_ports.clone(),
            passive_address: args.passive_address,
            certificate: args.certificate.clone(),
            key: args.key.clone(),
            deposits: absolute(&args.deposits)?,
            uid_min: args.uid_min,
            client_keys: keys.map(|(authority, users)| ClientKeys { authority, users }),
            idle_max: args.idle,
            limits: LoginLimits {
                sessions_max: usize::try_from(args.sessions).unwrap_or(usize::MAX),
                user_sessions_max: usize::try_from(args.user_sessions).unwrap_or(usize::MAX),
                strangers_max: STRANGERS_MAX,
            },
            program: match args.session {
                true => held_program()?,
                false => OWN_PROGRAM.into(),
            },
        })
    }

    /// Opens this program, and returns a path of it for the processes that this process starts: they
    /// inherit the handle. So they are of this version, also after another one replaced the file.
    fn held_program() -> Result<String, Unreached> {
        use rustix::fs::{Mode, OFlags, open};
        use rustix::io::{FdFlags, fcntl_dupfd_cloexec, fcntl_setfd};
        let held = || {
            let own = open(OWN_PROGRAM, OFlags::PATH | OFlags::CLOEXEC, Mode::empty())?;
            // A shell takes the low numbers for itself.
            let held = fcntl_dupfd_cloexec(&own, HELD_FROM)?;
            fcntl_setfd(&held, FdFlags::empty())?;
            Ok(held.into_raw_fd())
        };
        let number = held().map_err(|errno: rustix::io::Errno| {
            let why = cause(&errno.into());
            (
                Exit::CouldNotRun,
                format!("{OWN_PROGRAM}: cannot open: {why}; mount /proc"),
            )
        })?;
        Ok(format!("/proc/self/fd/{number}"))
    }

    /// Returns whether PAM has rules of this service (pam.d(5)).
    #[allow(
        clippy::disallowed_methods,
        reason = "a file of the system, no part of a replicated tree"
    )]
    fn is_service(name: &str) -> bool {
        let folders = ["/etc/pam.d", "/usr/lib/pam.d"];
        let is_name = !name.is_empty() && !name.contains(['/', '\0']);
        is_name
            && folders
                .iter()
                .any(|folder| Path::new(folder).join(name).is_file())
    }
}
