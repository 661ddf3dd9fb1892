//! An endpoint: one key, one list of trusted peers, and all connections made with them.

use crate::bundle::{STACK_BYTES, resource};
use crate::context::EndpointShared;
use crate::handshake::{Handshake, OpenWire};
use crate::heartbeat::Heartbeats;
use crate::opening::LinkOpening;
use crate::sockets::connect_to;
use crate::tls::TlsContext;
use crate::{
    BUNDLE_LINKS_MAX, ConnectFault, DataLink, Error, ExpectedPeer, LinkBundle, LinkListener,
    LinkSettings, PeerKey, PeerTrust, PortRange, TlsIdentity,
};
use driftless_model::cause;
use ring::rand::{SecureRandom, SystemRandom};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

/// Source of connections: connects to peers and listens for them.
///
/// A clone shares everything.
#[derive(Clone)]
pub struct DataEndpoint(Arc<EndpointShared>);

impl DataEndpoint {
    /// Returns an endpoint, and starts the thread that sends heartbeats.
    ///
    /// # Errors
    /// Fails if the identity has a certificate and the trust has no authority, or the reverse. Also
    /// fails if the settings contradict each other.
    pub fn new(
        identity: TlsIdentity,
        trust: PeerTrust,
        settings: LinkSettings,
    ) -> Result<Self, Error> {
        settings.check()?;
        let tls = TlsContext::new(identity, trust, settings.cipher)?;
        Self::with_tls(tls, settings)
    }

    fn with_tls(tls: TlsContext, settings: LinkSettings) -> Result<Self, Error> {
        Ok(DataEndpoint(Arc::new(EndpointShared {
            tls,
            heartbeats: Heartbeats::start(settings.heartbeat)?,
            settings: Arc::new(settings),
        })))
    }

    /// Returns the key that peers know this end by.
    pub fn key(&self) -> PeerKey {
        self.0.tls.identity().key()
    }

    /// Returns the trusted peers. Changes hold for this endpoint at once.
    pub fn trust(&self) -> &PeerTrust {
        self.0.tls.trust()
    }

    /// Listens on the first free port of `ports`.
    ///
    /// The address `::` takes IPv4 connections, too.
    ///
    /// # Errors
    /// Fails if no port is free, or the address is not one of this host.
    pub fn listen(&self, address: IpAddr, ports: PortRange) -> Result<LinkListener, Error> {
        LinkListener::start(Arc::clone(&self.0), address, ports)
    }

    /// Connects to the first of `addresses` where `peer` answers.
    ///
    /// # Errors
    /// Fails if the peer answers nowhere, or refuses the key of this end. The error names each
    /// address with its cause.
    pub fn connect(
        &self,
        addresses: &[SocketAddr],
        peer: &ExpectedPeer,
    ) -> Result<DataLink, Error> {
        let begin = Instant::now();
        self.connect_first(addresses, peer, LinkOpening::ALONE, begin)
    }

    /// Makes `count` connections to the same peer, at most [`BUNDLE_LINKS_MAX`].
    ///
    /// # Errors
    /// As [`Self::connect`]; each of the connections must succeed.
    pub fn connect_bundle(
        &self,
        addresses: &[SocketAddr],
        peer: &ExpectedPeer,
        count: u8,
    ) -> Result<LinkBundle, Error> {
        let mut opening = LinkOpening {
            count: count.clamp(1, BUNDLE_LINKS_MAX),
            ..LinkOpening::ALONE
        };
        let filled = SystemRandom::new().fill(&mut opening.id);
        filled.map_err(|_| Error::Identity("the system gives no random numbers".into()))?;
        let first = self.connect_first(addresses, peer, opening, Instant::now())?;
        let others = self.connect_others(first.peer().address, peer, opening)?;
        LinkBundle::new([first].into_iter().chain(others).collect())
    }

    /// Makes the connections of a bundle behind the first one. One after the other, they would take too
    /// long over a line with delay.
    fn connect_others(
        &self,
        address: SocketAddr,
        peer: &ExpectedPeer,
        first: LinkOpening,
    ) -> Result<Vec<DataLink>, Error> {
        let connect =
            |index| self.connect_first(&[address], peer, first.with_index(index), Instant::now());
        let connect = &connect;
        thread::scope(|scope| {
            let start = |index| {
                let builder = Builder::new().name("connect".into());
                builder
                    .stack_size(STACK_BYTES)
                    .spawn_scoped(scope, move || connect(index))
            };
            let begun: Vec<_> = (1..first.count).map(start).collect();
            let ended = begun.into_iter().map(|thread| {
                let made = thread.map_err(resource)?.join();
                made.map_err(|_| resource("a thread panicked"))?
            });
            ended.collect()
        })
    }

    fn connect_first(
        &self,
        addresses: &[SocketAddr],
        peer: &ExpectedPeer,
        opening: LinkOpening,
        begin: Instant,
    ) -> Result<DataLink, Error> {
        let mut attempts = Vec::new();
        for (number, address) in addresses.iter().enumerate() {
            // Each address has an equal share of the time that is left.
            let left = self.0.settings.connect_max.saturating_sub(begin.elapsed());
            let addresses_left = addresses.len().saturating_sub(number).max(1);
            let share = left / u32::try_from(addresses_left).unwrap_or(u32::MAX);
            match self.attempt(*address, peer, opening, share) {
                Ok(open) => return Ok(self.0.link(open)),
                Err(cause) => attempts.push((*address, cause)),
            }
        }
        let peer = peer.clone();
        Err(Error::Connect { peer, attempts })
    }

    fn attempt(
        &self,
        address: SocketAddr,
        peer: &ExpectedPeer,
        opening: LinkOpening,
        limit: Duration,
    ) -> Result<OpenWire, ConnectFault> {
        let begin = Instant::now();
        let settings = &self.0.settings;
        let stream = connect_to(address, settings, limit).map_err(|error| cause(&error))?;
        let session = self.0.tls.connector(peer.clone());
        let session = session.map_err(|error| error.to_string())?;
        let left = limit
            .saturating_sub(begin.elapsed())
            .min(settings.handshake_max);
        let handshake = Handshake::new(stream, session, left);
        handshake.open(self.trust(), opening, settings.message_bytes_max())
    }
}

#[cfg(test)]
mod tests {
    use super::{DataEndpoint, TlsContext};
    use crate::{
        ArrivedLink, CipherChoice, ExpectedPeer, LinkSettings, PeerTrust, PortRange, TlsIdentity,
    };
    use std::net::{IpAddr, Ipv4Addr};
    use std::thread;
    use std::time::Duration;

    const LONG: Duration = Duration::from_secs(60);

    /// Returns two endpoints whose keys encrypt a few records each.
    fn with_short_lived_keys() -> (DataEndpoint, DataEndpoint) {
        let identities = [(); 2].map(|()| TlsIdentity::generate().unwrap());
        let trust = PeerTrust::keys(identities.iter().map(TlsIdentity::key));
        let settings = || LinkSettings {
            silence_max: LONG,
            handshake_max: LONG,
            connect_max: LONG,
            ..LinkSettings::default()
        };
        let [one, two] = identities.map(|identity| {
            let tls = TlsContext::new(identity, trust.clone(), CipherChoice::Aes128Gcm).unwrap();
            DataEndpoint::with_tls(tls.with_records_max(20), settings()).unwrap()
        });
        (one, two)
    }

    #[test]
    fn keys_are_renewed_while_both_ends_send() {
        const UNITS: usize = 300;
        let (one, two) = with_short_lived_keys();
        let listener = one
            .listen(IpAddr::V4(Ipv4Addr::LOCALHOST), PortRange::ANY)
            .unwrap();
        let peer = ExpectedPeer::Key(one.key());
        let connected = two.connect(&[listener.address()], &peer).unwrap();
        let Some(ArrivedLink::Link(arrived)) = listener.accept(LONG) else {
            panic!("no connection")
        };
        thread::scope(|scope| {
            for link in [connected, arrived] {
                let (sender, mut receiver) = link.split();
                scope.spawn(move || {
                    let unit = vec![5; 64 << 10];
                    (0..UNITS).for_each(|_| sender.send(1, &[&unit]).unwrap());
                    sender.finish().unwrap();
                });
                scope.spawn(move || {
                    let mut count = 0;
                    while receiver.recv().unwrap().is_some() {
                        count += 1;
                    }
                    assert_eq!(count, UNITS);
                });
            }
        });
    }
}
