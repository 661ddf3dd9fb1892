//! Logins of a session: by a password, or by a client certificate.
//!
//! A client learns no cause of a refusal, and waits before it gets one. The log has the cause.

use crate::channels::SessionChannels;
use crate::home::UserHome;
use crate::message::{ServerAnswer, SessionQuestion, receive, send};
use crate::tls::Handshakes;
use crate::users::{Account, ClientUsers, is_user_name};
use crate::{ClientKeys, FtpsSettings};
use async_trait::async_trait;
use driftless_lock::Mutex;
use driftless_model::{cause, escape_text};
use std::fmt;
use std::io::BufReader;
use std::net::IpAddr;
use std::os::unix::net::UnixStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::Duration;
use unftp_core::auth::{
    AuthenticationError, Authenticator, ChannelEncryptionState, Credentials, Principal, UserDetail,
    UserDetailError, UserDetailProvider,
};

/// Logins that a client may try in one session. A further one ends the session.
const TRIES_MAX: usize = 6;
/// Wait before the answer to a failed login.
const FAILURE_DELAY: Duration = Duration::from_secs(2);

/// Check of passwords and accounts, such as PAM.
pub trait PasswordCheck: Send + Sync {
    /// Checks a password, and that the account is neither expired nor locked.
    ///
    /// # Errors
    /// Cause of the refusal, for the log.
    fn check_password(&self, user: &str, password: &str, address: IpAddr) -> Result<(), String>;

    /// Checks that the account is neither expired nor locked.
    ///
    /// # Errors
    /// Cause of the refusal, for the log.
    fn check_account(&self, user: &str, address: IpAddr) -> Result<(), String>;
}

/// The server, which a session asks.
pub struct ServerLine(Mutex<(UnixStream, BufReader<UnixStream>)>);

impl ServerLine {
    /// Returns the line over a socket.
    ///
    /// # Errors
    /// The socket cannot be duplicated.
    pub fn new(socket: UnixStream) -> std::io::Result<Self> {
        let from = BufReader::new(socket.try_clone()?);
        Ok(ServerLine(Mutex::new((socket, from))))
    }

    fn ask(&self, question: &SessionQuestion) -> ServerAnswer {
        let mut line = self.0.lock();
        let (to, from) = &mut *line;
        let answer = send(to, question).and_then(|()| receive::<ServerAnswer>(from));
        match answer {
            Ok(Some(answer)) => answer,
            Ok(None) => Err("the server ends".to_owned()),
            Err(error) => Err(format!("the server does not answer: {}", cause(&error))),
        }
    }
}

/// Checks of logins, shared by the threads of a session.
pub struct LoginChecks {
    pub settings: FtpsSettings,
    pub password: Option<Arc<dyn PasswordCheck>>,
    pub server: ServerLine,
    pub handshakes: Arc<Handshakes>,
    /// Connections of the session, which too many logins end.
    pub channels: Arc<SessionChannels>,
    /// Logins that the client tried.
    pub tries: AtomicUsize,
}

impl fmt::Debug for LoginChecks {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.debug_struct("LoginChecks").finish_non_exhaustive()
    }
}

impl LoginChecks {
    /// Checks a login. Returns the way of the proof.
    fn check(&self, user: &str, proof: &Credentials) -> Result<&'static str, String> {
        if proof.command_channel_security != ChannelEncryptionState::Tls {
            return Err("the connection has no TLS".to_owned());
        }
        if !is_user_name(user) {
            // It counts for the address, so that the log has a bounded number of lines.
            let unnamed = String::new();
            self.server.ask(&SessionQuestion::Attempt(unnamed))?;
            return Err("no user can have this name".to_owned());
        }
        let chain = proof.certificate_chain.as_ref();
        let certified = chain
            .and_then(|chain| chain.first())
            .map(|certificate| self.check_certificate(user, certificate.as_ref(), proof));
        // No client can guess a key, so failed logins of other clients do not lock out a certificate.
        if let Some(Ok(way)) = certified {
            Account::find(user, self.settings.uid_min)?;
            self.server
                .ask(&SessionQuestion::Certified(user.to_owned()))?;
            return Ok(way);
        }
        self.server
            .ask(&SessionQuestion::Attempt(user.to_owned()))?;
        let way = match (certified, &proof.password) {
            (Some(refused), _) => refused,
            (None, Some(password)) => self.check_password(user, password, proof.source_ip),
            (None, None) => Err("neither a password nor a certificate".to_owned()),
        }?;
        Account::find(user, self.settings.uid_min)?;
        self.server.ask(&SessionQuestion::LogIn(user.to_owned()))?;
        Ok(way)
    }

    /// Checks a certificate, whose signature and validity TLS has verified. A client with a
    /// certificate gets no second try with a password.
    fn check_certificate(
        &self,
        user: &str,
        certificate: &[u8],
        proof: &Credentials,
    ) -> Result<&'static str, String> {
        let keys = self.settings.client_keys.as_ref();
        let ClientKeys { users, .. } = keys.ok_or("no client certificate may log in")?;
        // The file is read anew, so that a line that was removed has an effect at once.
        let users = ClientUsers::read(users).map_err(|error| error.to_string())?;
        if !users.may(certificate, user) {
            return Err("the certificate is not one of this user (--client-users)".to_owned());
        }
        if let Some(check) = &self.password {
            check.check_account(user, proof.source_ip)?;
        }
        self.handshakes.require(certificate);
        Ok("certificate")
    }

    fn check_password(
        &self,
        user: &str,
        password: &str,
        address: IpAddr,
    ) -> Result<&'static str, String> {
        let check = self.password.as_ref();
        let check = check.ok_or("passwords are off; allow them with --pam")?;
        check.check_password(user, password, address)?;
        Ok("password")
    }
}

/// The part of the checks that libunftp asks.
#[derive(Debug)]
pub struct SessionLogin(pub Arc<LoginChecks>);

#[async_trait]
impl Authenticator for SessionLogin {
    async fn authenticate(
        &self,
        username: &str,
        creds: &Credentials,
    ) -> Result<Principal, AuthenticationError> {
        // A client may send many passwords at once, and libunftp checks them at the same time.
        if self.0.tries.fetch_add(1, Relaxed) >= TRIES_MAX {
            self.0.channels.give_up();
            return Err(AuthenticationError::BadPassword);
        }
        let (checks, user, proof) = (self.0.clone(), username.to_owned(), creds.clone());
        let checked = tokio::task::spawn_blocking(move || checks.check(&user, &proof));
        let checked = checked.await.map_err(|_| AuthenticationError::BadUser)?;
        let (address, shown) = (creds.source_ip, escape_text(username));
        match checked {
            Ok(way) => {
                tracing::info!("{address}: user {shown}: logged in by {way}");
                Ok(Principal {
                    username: username.to_owned(),
                })
            }
            Err(why) => {
                tracing::warn!("{address}: user {shown}: login refused: {why}");
                tokio::time::sleep(FAILURE_DELAY).await;
                Err(AuthenticationError::BadPassword)
            }
        }
    }

    async fn cert_auth_sufficient(&self, _: &str) -> bool {
        self.0.settings.client_keys.is_some()
    }
}

/// User who has logged in.
pub struct DepositUser {
    /// Name.
    pub name: String,
    /// Home, which an agent of the user serves.
    pub home: Arc<UserHome>,
}

impl fmt::Debug for DepositUser {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(out, "DepositUser({:?})", self.name)
    }
}

impl fmt::Display for DepositUser {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str(&self.name)
    }
}

impl UserDetail for DepositUser {}

#[async_trait]
impl UserDetailProvider for SessionLogin {
    type User = DepositUser;

    async fn provide_user_detail(
        &self,
        principal: &Principal,
    ) -> Result<DepositUser, UserDetailError> {
        let (checks, name) = (self.0.clone(), principal.username.clone());
        let opened = tokio::task::spawn_blocking(move || {
            let account = Account::find(&name, checks.settings.uid_min)?;
            crate::memory::allow_memory_of_agent();
            let home = UserHome::open(&account, &checks.settings)?;
            // The handshake of the control connection belongs to no transfer.
            checks.handshakes.clear();
            Ok(DepositUser {
                name,
                home: Arc::new(home),
            })
        });
        let failed = |why: String| {
            tracing::error!("user {}: {why}", escape_text(&principal.username));
            UserDetailError::Generic(why)
        };
        match opened.await {
            Ok(opened) => opened.map_err(failed),
            Err(error) => Err(failed(error.to_string())),
        }
    }
}
