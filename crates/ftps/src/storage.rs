//! Storage of libunftp: calls on the home of a user, on threads of their own, with bounds of time.

use crate::channels::SessionChannels;
use crate::home::{Upload, UploadRefusal, UserHome};
use crate::login::DepositUser;
use crate::path::HomePath;
use async_trait::async_trait;
use driftless_model::{Fault, Kind, Meta, errno, quote};
use std::ffi::OsStr;
use std::io::{self, ErrorKind as IoKind};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::time::{Duration, SystemTime};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::sync::watch;
use unftp_core::storage::{
    Error, ErrorKind, FEATURE_RESTART, Fileinfo, Metadata, Permissions, Result, StorageBackend,
};

/// Bytes that are read or written at once.
const BUFFER_BYTES: usize = 256 * 1024;

/// Reason of a refused transfer.
const NO_TLS: &str = "the data connection has no TLS, or not the certificate of the login";

/// Storage of one session.
#[derive(Debug, Clone)]
pub struct DepositStorage {
    /// Connections of the session.
    pub channels: Arc<SessionChannels>,
    /// Longest time without a byte of a transfer.
    pub idle_max: Duration,
    /// Becomes `true` when the session is to end.
    pub stop: watch::Receiver<bool>,
    /// Transfers that have begun and not ended.
    pub transfers: Arc<AtomicUsize>,
    /// Address of the client, for the log.
    pub client: String,
}

/// Metadata of an entry, as libunftp shows it.
#[derive(Debug, Clone)]
pub struct EntryMeta(Meta);

impl Metadata for EntryMeta {
    fn len(&self) -> u64 {
        self.0.size
    }

    fn is_dir(&self) -> bool {
        self.0.kind == Kind::Dir
    }

    fn is_file(&self) -> bool {
        self.0.kind == Kind::File
    }

    fn is_symlink(&self) -> bool {
        self.0.kind == Kind::Symlink
    }

    fn modified(&self) -> Result<SystemTime> {
        let mtime = self.0.mtime;
        let seconds = u64::try_from(mtime.sec).unwrap_or_default();
        let since = Duration::new(seconds, mtime.nsec);
        let time = SystemTime::UNIX_EPOCH.checked_add(since);
        time.ok_or_else(|| Error::from(ErrorKind::LocalError))
    }

    fn gid(&self) -> u32 {
        self.0.gid
    }

    fn uid(&self) -> u32 {
        self.0.uid
    }

    fn links(&self) -> u64 {
        self.0.nlink
    }

    fn permissions(&self) -> Permissions {
        Permissions(self.0.mode)
    }
}

/// Transfer that counts until it ends.
struct RunningTransfer(Arc<AtomicUsize>);

impl Drop for RunningTransfer {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Relaxed);
    }
}

/// End of a copy between a connection and a file.
enum TransferFailure {
    /// The connection broke, fell silent, or the session ends.
    Connection(io::Error),
    /// The file cannot be read or written.
    File(Fault),
}

impl DepositStorage {
    /// Begins a transfer, which needs a data connection with TLS of this client. Returns its position.
    /// libunftp states the position `end`, which is right for `APPE` alone.
    fn begin_transfer(&self, end: u64) -> Result<(RunningTransfer, u64)> {
        let Some(start) = self.channels.begin_transfer(end) else {
            tracing::warn!("{}: transfer refused: {NO_TLS}", self.client);
            return Err(Error::new(ErrorKind::PermissionDenied, NO_TLS));
        };
        self.transfers.fetch_add(1, Relaxed);
        Ok((RunningTransfer(self.transfers.clone()), start))
    }

    /// Returns the path in the home for a path of the client.
    fn parsed(&self, path: &Path) -> Result<HomePath> {
        let absolute = self.channels.absolute(path);
        let absolute = absolute.ok_or_else(|| Error::from(ErrorKind::LocalError))?;
        HomePath::parse(&absolute).ok_or_else(|| Error::from(ErrorKind::FileNameNotAllowedError))
    }

    /// Carries out an act on the home of a user.
    async fn on_home<T: Send + 'static>(
        &self,
        user: &DepositUser,
        path: &Path,
        act: impl FnOnce(&UserHome, &HomePath) -> std::result::Result<T, Fault> + Send + 'static,
    ) -> Result<T> {
        let (home, path) = (user.home.clone(), self.parsed(path)?);
        let done = self.blocking(move || act(&home, &path)).await;
        done.map_err(|fault| self.failed(fault))
    }

    /// Waits for an act on a thread of its own. An act that panics has ended the process.
    async fn blocking<T: Send + 'static>(&self, act: impl FnOnce() -> T + Send + 'static) -> T {
        let _running = self.channels.begin_act();
        let done = tokio::task::spawn_blocking(act).await;
        done.expect("an act on a home does not panic")
    }

    /// Returns the error of libunftp for a failed act. Without the agent of the user, the session ends.
    fn failed(&self, fault: Fault) -> Error {
        match fault.errno {
            errno::EDQUOT => Error::from(ErrorKind::ExceededStorageAllocationError),
            number if fault.is_cut_off() => {
                tracing::error!("{}: the agent of the user is gone ({number})", self.client);
                self.channels.give_up();
                Error::from(ErrorKind::LocalError)
            }
            number => Error::from(io::Error::from_raw_os_error(number)),
        }
    }

    fn refused(&self, refusal: UploadRefusal) -> Error {
        match refusal {
            UploadRefusal::Fault(fault) => self.failed(fault),
            // "553 File name not allowed": a client stores the whole file instead.
            UploadRefusal::Finished => Error::from(ErrorKind::FileNameNotAllowedError),
            UploadRefusal::NothingToResume => Error::from(ErrorKind::TransientFileNotAvailable),
        }
    }

    /// Waits for an act on a connection, at most for the idle time and until the session or the client
    /// ends the transfer.
    async fn within<T>(&self, act: impl Future<Output = io::Result<T>>) -> io::Result<T> {
        let mut stop = self.stop.clone();
        let done = tokio::select! {
            done = tokio::time::timeout(self.idle_max, act) => done,
            _ = stop.wait_for(|stop| *stop) => return Err(IoKind::ConnectionAborted.into()),
            () = self.channels.aborted() => return Err(abort()),
        };
        self.channels.touch();
        done.unwrap_or_else(|_| Err(IoKind::ConnectionAborted.into()))
    }

    /// Fills a buffer from a connection. Returns the failure, if the connection broke off.
    async fn fill(&self, input: &mut (impl AsyncRead + Unpin)) -> (Vec<u8>, io::Result<()>) {
        let mut buffer = Vec::with_capacity(BUFFER_BYTES);
        while buffer.len() < BUFFER_BYTES {
            match self.within(input.read_buf(&mut buffer)).await {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => return (buffer, Err(error)),
            }
        }
        (buffer, Ok(()))
    }

    /// Writes all bytes of a connection to an upload, and makes them durable. A connection that ends
    /// without the closing message of TLS, or after `ABOR`, broke off.
    async fn receive(
        &self,
        input: &mut (impl AsyncRead + Unpin),
        upload: &mut Option<Upload>,
    ) -> std::result::Result<(), TransferFailure> {
        loop {
            let (data, filled) = self.fill(input).await;
            if data.is_empty() {
                filled.map_err(TransferFailure::Connection)?;
                break;
            }
            self.on_upload(upload, move |upload| upload.write(&data))
                .await?;
            filled.map_err(TransferFailure::Connection)?;
        }
        // `ABOR` may arrive together with the end of the data: it is read during this act.
        self.on_upload(upload, Upload::settle).await?;
        match self.channels.is_aborted() {
            true => Err(TransferFailure::Connection(abort())),
            false => Ok(()),
        }
    }

    async fn on_upload(
        &self,
        upload: &mut Option<Upload>,
        act: impl FnOnce(&mut Upload) -> std::result::Result<(), Fault> + Send + 'static,
    ) -> std::result::Result<(), TransferFailure> {
        let Some(mut taken) = upload.take() else {
            return Ok(());
        };
        let acted = move || {
            let done = act(&mut taken);
            (taken, done)
        };
        let (back, done) = self.blocking(acted).await;
        *upload = Some(back);
        done.map_err(TransferFailure::File)
    }

    /// Ends an upload that failed: bytes of a broken connection are kept to resume the upload.
    async fn break_off(&self, upload: Upload, failure: TransferFailure, shown: &str) -> Error {
        let bytes = upload.bytes();
        match failure {
            TransferFailure::Connection(error) => {
                tracing::warn!("{shown}: upload broke off after {bytes} bytes: {error}");
                self.blocking(move || drop(upload)).await;
                Error::new(ErrorKind::ConnectionClosed, error)
            }
            TransferFailure::File(fault) => {
                tracing::warn!("{shown}: upload failed: {}", fault.cause());
                self.blocking(move || upload.discard()).await;
                self.failed(fault)
            }
        }
    }

    fn shown(&self, user: &DepositUser, path: &Path) -> String {
        format!("{}: user {}: {}", self.client, user.name, quote(path))
    }

    /// Carries out an act on a path, and logs it.
    async fn change(
        &self,
        user: &DepositUser,
        path: &Path,
        word: &str,
        act: impl FnOnce(&UserHome, &HomePath) -> std::result::Result<(), Fault> + Send + 'static,
    ) -> Result<()> {
        self.channels.touch();
        let changed = self.on_home(user, path, act).await;
        match &changed {
            Ok(()) => tracing::info!("{}: {word}", self.shown(user, path)),
            Err(error) => tracing::info!("{}: not {word}: {error}", self.shown(user, path)),
        }
        changed
    }

    async fn entries(
        &self,
        user: &DepositUser,
        path: &Path,
    ) -> Result<Vec<Fileinfo<PathBuf, EntryMeta>>> {
        let entries = self.on_home(user, path, UserHome::list).await?;
        let info = |(name, meta): (std::ffi::CString, Meta)| Fileinfo {
            path: PathBuf::from(listed_name(name.to_bytes())),
            metadata: EntryMeta(meta),
        };
        Ok(entries.into_iter().map(info).collect())
    }
}

fn abort() -> io::Error {
    io::Error::new(IoKind::ConnectionAborted, "the client sent ABOR")
}

/// Returns a name for a line of a listing, in which a control character would begin another line.
fn listed_name(name: &[u8]) -> String {
    let text = OsStr::from_bytes(name).to_string_lossy();
    text.replace(char::is_control, "?")
}

#[async_trait]
impl StorageBackend<DepositUser> for DepositStorage {
    type Metadata = EntryMeta;

    fn supported_features(&self) -> u32 {
        FEATURE_RESTART
    }

    async fn metadata<P: AsRef<Path> + Send + std::fmt::Debug>(
        &self,
        user: &DepositUser,
        path: P,
    ) -> Result<EntryMeta> {
        let meta = self.on_home(user, path.as_ref(), UserHome::meta).await?;
        Ok(EntryMeta(meta))
    }

    async fn list<P: AsRef<Path> + Send + std::fmt::Debug>(
        &self,
        user: &DepositUser,
        path: P,
    ) -> Result<Vec<Fileinfo<PathBuf, EntryMeta>>> {
        let _transfer = self.begin_transfer(0)?;
        self.entries(user, path.as_ref()).await
    }

    /// Lists for `STAT`, whose answer goes over the control connection.
    async fn list_vec<P: AsRef<Path> + Send + std::fmt::Debug>(
        &self,
        user: &DepositUser,
        path: P,
    ) -> Result<Vec<String>> {
        let entries = self.entries(user, path.as_ref()).await?;
        Ok(entries.iter().map(ToString::to_string).collect())
    }

    async fn get_into<'a, P, W>(
        &self,
        user: &DepositUser,
        path: P,
        start_pos: u64,
        output: &'a mut W,
    ) -> Result<u64>
    where
        W: AsyncWrite + Unpin + Sync + Send + ?Sized,
        P: AsRef<Path> + Send + std::fmt::Debug,
    {
        let (_transfer, start_pos) = self.begin_transfer(start_pos)?;
        let mut file = self.on_home(user, path.as_ref(), UserHome::read).await?;
        let mut at = start_pos;
        loop {
            let (back, read) = self
                .blocking(move || {
                    let mut buffer = vec![0; BUFFER_BYTES];
                    let read = file.read_at(&mut buffer, at).map(|count| {
                        buffer.truncate(count);
                        buffer
                    });
                    (file, read)
                })
                .await;
            file = back;
            let data = read.map_err(|fault| self.failed(fault))?;
            if data.is_empty() {
                break;
            }
            self.within(output.write_all(&data)).await?;
            at += data.len() as u64;
        }
        self.within(output.flush()).await?;
        let bytes = at - start_pos;
        tracing::info!("{}: sent {bytes} bytes", self.shown(user, path.as_ref()));
        Ok(bytes)
    }

    /// Is not used: `get_into` takes its place, and `SITE MD5` is off.
    async fn get<P: AsRef<Path> + Send + std::fmt::Debug>(
        &self,
        _: &DepositUser,
        _: P,
        _: u64,
    ) -> Result<Box<dyn AsyncRead + Send + Sync + Unpin>> {
        Err(Error::from(ErrorKind::CommandNotImplemented))
    }

    async fn put<P, R>(
        &self,
        user: &DepositUser,
        mut input: R,
        path: P,
        start_pos: u64,
    ) -> Result<u64>
    where
        P: AsRef<Path> + Send + std::fmt::Debug,
        R: AsyncRead + Send + Sync + Unpin + 'static,
    {
        let (_transfer, start_pos) = self.begin_transfer(start_pos)?;
        let shown = self.shown(user, path.as_ref());
        let (home, parsed) = (user.home.clone(), self.parsed(path.as_ref())?);
        let begun = self.blocking(move || home.upload(&parsed, start_pos)).await;
        let begun = begun.inspect_err(|why| {
            tracing::warn!("{shown}: upload at {start_pos} refused: {why:?}");
        });
        let mut upload = Some(begun.map_err(|refusal| self.refused(refusal))?);
        let received = self.receive(&mut input, &mut upload).await;
        let Some(upload) = upload.take() else {
            return Err(Error::from(ErrorKind::LocalError));
        };
        if let Err(failure) = received {
            return Err(self.break_off(upload, failure, &shown).await);
        }
        let published = self.blocking(move || upload.publish()).await;
        let bytes = published.map_err(|fault| {
            tracing::warn!("{shown}: upload failed: {}", fault.cause());
            self.failed(fault)
        })?;
        tracing::info!("{shown}: deposited {bytes} bytes");
        Ok(bytes - start_pos)
    }

    async fn del<P: AsRef<Path> + Send + std::fmt::Debug>(
        &self,
        user: &DepositUser,
        path: P,
    ) -> Result<()> {
        self.change(user, path.as_ref(), "removed", UserHome::remove)
            .await
    }

    async fn mkd<P: AsRef<Path> + Send + std::fmt::Debug>(
        &self,
        user: &DepositUser,
        path: P,
    ) -> Result<()> {
        self.change(user, path.as_ref(), "created", UserHome::make_dir)
            .await
    }

    async fn rename<P: AsRef<Path> + Send + std::fmt::Debug>(
        &self,
        user: &DepositUser,
        from: P,
        to: P,
    ) -> Result<()> {
        let target = self.parsed(to.as_ref())?;
        let word = format!("renamed to {}", quote(to.as_ref()));
        self.change(user, from.as_ref(), &word, move |home, from| {
            home.rename(from, &target)
        })
        .await
    }

    async fn rmd<P: AsRef<Path> + Send + std::fmt::Debug>(
        &self,
        user: &DepositUser,
        path: P,
    ) -> Result<()> {
        self.change(user, path.as_ref(), "removed", UserHome::remove_dir)
            .await
    }

    async fn cwd<P: AsRef<Path> + Send + std::fmt::Debug>(
        &self,
        user: &DepositUser,
        path: P,
    ) -> Result<()> {
        self.on_home(user, path.as_ref(), UserHome::enter).await?;
        self.channels.enter_dir(path.as_ref());
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn name_stays_on_its_line_of_a_listing() {
        assert_eq!(listed_name(b"a\r\nb\xff"), "a??b\u{FFFD}");
    }
}
