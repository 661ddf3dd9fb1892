//! An FTPS server through which users deposit files for casts.
//!
//! `FtpsServer` accepts connections and starts a process for each: a session. A session speaks
//! FTP (libunftp) and TLS, and asks the server before each login, because the limits of logins span
//! sessions. After a login, an agent with the UID and the groups of the user acts in the home of this
//! user.
//!
//! What must hold:
//!
//! 1. A session touches no file of a user but through the agent of this user.
//! 2. A password, a name of a file or a byte of a file never crosses a connection without TLS.
//! 3. A file has its name only when all of its bytes arrived and are durable.
//! 4. Whatever a client sends, it costs one process with a limited memory, and never the server.

mod channels;
mod commands;
mod error;
mod filter;
mod home;
mod login;
mod memory;
mod message;
mod path;
mod policy;
mod refusals;
mod server;
mod session;
mod settings;
mod storage;
mod tls;
mod users;

pub use error::Error;
pub use login::PasswordCheck;
pub use policy::LoginLimits;
pub use server::FtpsServer;
pub use session::run_session;
pub use settings::{ClientKeys, FtpsSettings, ServerProcess};
