//! Peers that are refused, and addresses: keys, authorities, other protocols, silence.

mod common;

use common::{Ends, LOCALHOST, LONG, Relay, arrived, patient, wait_until};
use driftless_dataplane::{
    ArrivedLink, CipherChoice, DataEndpoint, Error, ExpectedPeer, LinkFault, LinkListener,
    LinkSettings, PeerTrust, PortRange, TlsIdentity,
};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv6Addr, SocketAddr, TcpListener, TcpStream};
use std::process::{Command, Stdio};
use std::thread;
use std::time::{Duration, Instant, SystemTime};

fn hasty() -> LinkSettings {
    LinkSettings {
        handshake_max: Duration::from_millis(500),
        connect_max: Duration::from_millis(500),
        ..patient()
    }
}

fn endpoint(trust: PeerTrust) -> DataEndpoint {
    DataEndpoint::new(TlsIdentity::generate().unwrap(), trust, patient()).unwrap()
}

/// Waits for a refusal, and returns its cause.
fn refusal(listener: &LinkListener) -> String {
    wait_until("a refusal", || listener.refused().count > 0);
    listener.refused().last.unwrap().1
}

fn connect_error(endpoint: &DataEndpoint, address: SocketAddr, peer: &ExpectedPeer) -> String {
    let error = endpoint.connect(&[address], peer).err();
    error.expect("the peer is refused").to_string()
}

#[test]
fn unlisted_key_is_refused() {
    let ends = Ends::new(patient(), patient());
    let stranger = endpoint(PeerTrust::keys([ends.listening.key()]));
    let error = connect_error(&stranger, ends.listener.address(), &ends.peer());
    assert!(error.contains("does not trust this host"), "{error}");
    let expected = format!(
        "its key {} is not among the trusted keys (--trust)",
        stranger.key()
    );
    assert_eq!(refusal(&ends.listener), expected);
    assert!(ends.listener.accept(Duration::ZERO).is_none());
}

#[test]
fn another_key_at_the_address_is_refused() {
    let ends = Ends::new(patient(), patient());
    let other = TlsIdentity::generate().unwrap().key();
    ends.connecting.trust().trust(other);
    let address = ends.listener.address();
    let error = connect_error(&ends.connecting, address, &ExpectedPeer::Key(other));
    let found = format!("has the key {}, not", ends.listening.key());
    assert!(
        error.contains(&found) && error.contains(&other.to_string()),
        "{error}"
    );
    refusal(&ends.listener);
}

#[test]
fn peer_needs_trust_of_both_ends() {
    let ends = Ends::new(patient(), patient());
    let careful = endpoint(PeerTrust::keys([]));
    let error = connect_error(&careful, ends.listener.address(), &ends.peer());
    assert!(error.contains("is not trusted here"), "{error}");
}

#[test]
fn revoked_key_cannot_connect_again() {
    let ends = Ends::new(patient(), patient());
    let (one, two) = ends.link();
    let closing = thread::spawn(move || one.close(LONG));
    two.close(LONG).unwrap();
    closing.join().unwrap().unwrap();
    // Both endpoints share one list.
    ends.listening.trust().revoke(ends.connecting.key());
    let error = connect_error(&ends.connecting, ends.listener.address(), &ends.peer());
    assert!(error.contains("does not trust this host"), "{error}");
}

#[test]
fn revoked_key_ends_open_links() {
    let ends = Ends::new(patient(), patient());
    let (mut one, mut two) = ends.link();
    ends.listening.trust().revoke(ends.connecting.key());
    let Err(Error::Link { fault, key, .. }) = two.recv() else {
        panic!("the connection goes on")
    };
    assert_eq!((fault, key), (LinkFault::Revoked, ends.connecting.key()));
    assert!(one.recv().is_err());
}

#[test]
fn plaintext_client_is_refused() {
    let ends = Ends::new(patient(), patient());
    let mut client = TcpStream::connect(ends.listener.address()).unwrap();
    client
        .write_all(b"GET / HTTP/1.1\r\nHost: node\r\n\r\n")
        .unwrap();
    let mut answer = Vec::new();
    let _reset = client.read_to_end(&mut answer);
    assert!(answer.len() < 16, "an alert at most: {answer:?}");
    refusal(&ends.listener);
}

#[test]
fn plaintext_server_is_refused() {
    let server = TcpListener::bind((LOCALHOST, 0)).unwrap();
    let address = server.local_addr().unwrap();
    thread::spawn(move || {
        let (mut client, _) = server.accept().unwrap();
        client.write_all(b"SSH-2.0-OpenSSH_9.2p1\r\n").unwrap();
        let _until_it_ends = client.read_to_end(&mut Vec::new());
    });
    let key = TlsIdentity::generate().unwrap().key();
    let endpoint = endpoint(PeerTrust::keys([key]));
    let error = connect_error(&endpoint, address, &ExpectedPeer::Key(key));
    assert!(error.contains(&address.to_string()), "{error}");
}

/// Runs a client of OpenSSL against a listener, and returns its output.
fn openssl_client(listener: &LinkListener, words: &[&str]) -> String {
    let output = Command::new("openssl")
        .args(["s_client", "-connect", &listener.address().to_string()])
        .args(words)
        .stdin(Stdio::null())
        .output()
        .expect("openssl is installed");
    String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned()
}

#[test]
fn tls_1_2_is_refused() {
    let ends = Ends::new(patient(), patient());
    let text = openssl_client(&ends.listener, &["-tls1_2"]);
    assert!(text.contains("protocol version"), "{text}");
    refusal(&ends.listener);
}

#[test]
fn tls_client_without_a_key_is_refused() {
    let ends = Ends::new(patient(), patient());
    openssl_client(&ends.listener, &["-tls1_3", "-alpn", "driftless-data/1"]);
    refusal(&ends.listener);
    assert!(ends.listener.accept(Duration::ZERO).is_none());
}

#[test]
fn silent_client_ends_in_the_time_limit() {
    let ends = Ends::new(hasty(), patient());
    let mut client = TcpStream::connect(ends.listener.address()).unwrap();
    client.set_read_timeout(Some(LONG)).unwrap();
    assert_eq!(client.read(&mut [0; 9]).unwrap(), 0);
    assert!(refusal(&ends.listener).contains("no handshake within 0.5 s"));
}

#[test]
fn silent_server_ends_in_the_time_limit() {
    let server = TcpListener::bind((LOCALHOST, 0)).unwrap();
    let ends = Ends::new(patient(), hasty());
    let address = server.local_addr().unwrap();
    let begin = Instant::now();
    let error = connect_error(&ends.connecting, address, &ends.peer());
    assert!(error.contains("no handshake within"), "{error}");
    assert!(!error.contains("firewall"), "{error}");
    assert!(begin.elapsed() < LONG);
}

#[test]
fn half_open_handshake_ends_on_both_sides() {
    // The first flight of each end has several hundred bytes.
    for budget in [100, 400, 700] {
        let ends = Ends::new(hasty(), hasty());
        let relay = Relay::with_budget(ends.listener.address(), budget);
        let error = connect_error(&ends.connecting, relay.address, &ends.peer());
        // The end that began to wait earlier gives up first.
        let causes = [
            "no handshake within",
            "ended the connection during the handshake",
        ];
        assert!(causes.iter().any(|cause| error.contains(cause)), "{error}");
        refusal(&ends.listener);
        assert!(ends.listener.accept(Duration::ZERO).is_none());
    }
}

#[test]
fn silent_strangers_keep_no_peer_out() {
    let crowded = LinkSettings {
        handshakes_max: 4,
        ..patient()
    };
    let ends = Ends::new(crowded, patient());
    let address = ends.listener.address();
    let strangers: Vec<_> = (0..40)
        .map(|_| TcpStream::connect(address).unwrap())
        .collect();
    // Strangers that came earlier give way.
    wait_until("strangers give way", || ends.listener.refused().count >= 30);
    let (one, mut two) = ends.link();
    one.send(1, &[b"message"]).unwrap();
    assert_eq!(two.recv().unwrap().unwrap().bytes, b"message");
    drop(strangers);
}

#[test]
fn dropped_listener_keeps_its_links() {
    let ends = Ends::new(patient(), patient());
    let (one, mut two) = ends.link();
    let (address, peer) = (ends.listener.address(), ends.peer());
    drop(ends.listener);
    one.send(1, &[b"message"]).unwrap();
    assert_eq!(two.recv().unwrap().unwrap().bytes, b"message");
    let error = connect_error(&ends.connecting, address, &peer);
    assert!(error.contains("refused"), "{error}");
}

#[test]
fn first_reachable_address_is_taken() {
    let ends = Ends::new(patient(), patient());
    let closed = TcpListener::bind((LOCALHOST, 0))
        .unwrap()
        .local_addr()
        .unwrap();
    let addresses = [closed, ends.listener.address()];
    let link = ends.connecting.connect(&addresses, &ends.peer()).unwrap();
    assert_eq!(link.peer().address, ends.listener.address());
    arrived(&ends.listener);
    let error = ends
        .connecting
        .connect(&[closed, closed], &ends.peer())
        .err()
        .unwrap();
    assert_eq!(
        error.to_string().matches(&closed.to_string()).count(),
        2,
        "{error}"
    );
    let error = ends
        .connecting
        .connect(&[], &ends.peer())
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("no address is given"), "{error}");
}

#[test]
fn ipv6_and_ipv4_reach_one_socket() {
    let ends = Ends::new(patient(), patient());
    let any = IpAddr::V6(Ipv6Addr::UNSPECIFIED);
    let listener = ends.listening.listen(any, PortRange::ANY).unwrap();
    for address in [IpAddr::V6(Ipv6Addr::LOCALHOST), LOCALHOST] {
        let address = SocketAddr::new(address, listener.address().port());
        let one = ends.connecting.connect(&[address], &ends.peer()).unwrap();
        let two = arrived(&listener);
        assert_eq!(one.peer().address, address);
        assert_eq!(two.peer().address.ip(), address.ip());
    }
}

#[test]
fn exhausted_port_range_is_named() {
    let ends = Ends::new(patient(), patient());
    let ports = (20_000..60_000).find_map(|from| {
        let ports = PortRange::new(from, from + 1).unwrap();
        let one = ends.listening.listen(LOCALHOST, ports).ok()?;
        let two = ends.listening.listen(LOCALHOST, ports).ok()?;
        (one.address().port() == from && two.address().port() == from + 1)
            .then_some((one, two, ports))
    });
    let (_one, _two, ports) = ports.expect("two free ports");
    let error = ends
        .listening
        .listen(LOCALHOST, ports)
        .err()
        .unwrap()
        .to_string();
    assert!(
        error.contains(&format!(":{ports}: cannot listen: the port is in use")),
        "{error}"
    );
    let foreign: IpAddr = "192.0.2.1".parse().unwrap();
    let error = ends
        .listening
        .listen(foreign, ports)
        .err()
        .unwrap()
        .to_string();
    assert!(error.contains("192.0.2.1"), "{error}");
}

#[test]
fn ends_agree_on_a_cipher() {
    for (one, two, agreed) in [
        (
            CipherChoice::ChaCha20Poly1305,
            CipherChoice::Processor,
            "CHACHA20",
        ),
        (
            CipherChoice::Processor,
            CipherChoice::Aes128Gcm,
            "AES_128_GCM",
        ),
    ] {
        let with = |cipher| LinkSettings {
            cipher,
            ..patient()
        };
        let (link, _other) = Ends::new(with(one), with(two)).link();
        assert!(
            link.peer().cipher.contains(agreed),
            "{}",
            link.peer().cipher
        );
    }
}

/// A certificate authority in a folder.
struct Authority(tempfile::TempDir);

impl Authority {
    fn new() -> Self {
        let authority = Authority(tempfile::tempdir().unwrap());
        authority.openssl(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 \
             -subj /CN=site -addext keyUsage=keyCertSign -keyout ca.key -out ca.pem",
        );
        authority
    }

    fn openssl(&self, words: &str) {
        let mut command = Command::new("openssl");
        command.args(words.split_whitespace()).current_dir(&self.0);
        let output = command.output().expect("openssl is installed");
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
    }

    fn read(&self, name: &str) -> Vec<u8> {
        let mut bytes = Vec::new();
        let path = self.0.path().join(name);
        #[allow(clippy::disallowed_methods, reason = "a file of the test's own")]
        let mut file = std::fs::File::open(path).unwrap();
        file.read_to_end(&mut bytes).unwrap();
        bytes
    }

    fn trust(&self) -> PeerTrust {
        PeerTrust::authority(&self.read("ca.pem")).unwrap()
    }

    /// Returns a key with a certificate for a name.
    fn identity(&self, name: &str) -> TlsIdentity {
        self.identity_of(name, "serverAuth,clientAuth")
    }

    /// Returns a key with a certificate for a name and these purposes.
    fn identity_of(&self, name: &str, purposes: &str) -> TlsIdentity {
        self.openssl(&format!(
            "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 2 -subj /CN={name} \
             -addext subjectAltName=DNS:{name} -addext basicConstraints=critical,CA:FALSE \
             -addext extendedKeyUsage={purposes} -CA ca.pem -CAkey ca.key \
             -keyout {name}.key -out {name}.pem"
        ));
        let (chain, key) = (
            self.read(&format!("{name}.pem")),
            self.read(&format!("{name}.key")),
        );
        TlsIdentity::from_certificate(&chain, &key).unwrap()
    }

    fn endpoint(&self, name: &str) -> DataEndpoint {
        DataEndpoint::new(self.identity(name), self.trust(), patient()).unwrap()
    }
}

#[test]
fn authority_vouches_for_names() {
    let site = Authority::new();
    let (one, two) = (site.endpoint("node1"), site.endpoint("node2"));
    let listener = one.listen(LOCALHOST, PortRange::ANY).unwrap();
    let named = |name: &str| ExpectedPeer::Name(name.into());
    let link = two.connect(&[listener.address()], &named("node1")).unwrap();
    assert!(link.peer().is_named("node1") && !link.peer().is_named("node2"));
    assert!(arrived(&listener).peer().is_named("node2"));
    let error = connect_error(&two, listener.address(), &named("node3"));
    assert!(error.contains("node3"), "{error}");
    let error = connect_error(&two, listener.address(), &named("no name"));
    assert!(
        error.contains("neither a DNS name nor an IP address"),
        "{error}"
    );
    // The key of a peer serves as well as its name.
    two.connect(&[listener.address()], &ExpectedPeer::Key(one.key()))
        .unwrap();
    arrived(&listener);
    one.trust().revoke(two.key());
    let error = connect_error(&two, listener.address(), &named("node1"));
    assert!(error.contains("does not accept the certificate"), "{error}");
}

#[test]
fn end_of_the_own_certificate_is_known() {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    let site = Authority::new();
    let (identity, trust) = (site.identity("node1"), site.trust());
    let now = SystemTime::now();
    assert!(!identity.has_expired_at(&trust, now + DAY));
    assert!(identity.has_expired_at(&trust, now + DAY * 3));
    let raw = TlsIdentity::generate().unwrap();
    assert!(!raw.has_expired_at(&trust, now + DAY * 3));
}

#[test]
fn another_authority_is_refused() {
    let (site, other) = (Authority::new(), Authority::new());
    let (one, two) = (site.endpoint("node1"), other.endpoint("node2"));
    let listener = one.listen(LOCALHOST, PortRange::ANY).unwrap();
    let peer = ExpectedPeer::Name("node1".into());
    let error = connect_error(&two, listener.address(), &peer);
    assert!(error.contains("invalid peer certificate"), "{error}");
    // A peer with the right authority in its trust, and a certificate of another one.
    let false_peer = DataEndpoint::new(other.identity("node1"), site.trust(), patient()).unwrap();
    let error = connect_error(&false_peer, listener.address(), &peer);
    assert!(error.contains("does not accept the certificate"), "{error}");
    assert!(listener.accept(Duration::ZERO).is_none());
}

#[test]
fn certificates_need_both_purposes() {
    let site = Authority::new();
    let with = |name: &str, purposes: &str| {
        let identity = site.identity_of(name, purposes);
        DataEndpoint::new(identity, site.trust(), patient()).unwrap()
    };
    let (one, two) = (with("node1", "serverAuth"), with("node2", "clientAuth"));
    for (listening, connecting, name) in [(&one, &one, "node1"), (&two, &two, "node2")] {
        let listener = listening.listen(LOCALHOST, PortRange::ANY).unwrap();
        let peer = ExpectedPeer::Name(name.into());
        let error = connect_error(connecting, listener.address(), &peer);
        let remedy = "issue it with the extended key usages serverAuth and clientAuth";
        assert!(error.contains(remedy), "{error}");
        assert!(!error.contains("firewall"), "{error}");
    }
}

#[test]
fn raw_key_does_not_reach_an_authority() {
    let site = Authority::new();
    let one = site.endpoint("node1");
    let listener = one.listen(LOCALHOST, PortRange::ANY).unwrap();
    let stranger = endpoint(PeerTrust::keys([one.key()]));
    let error = connect_error(&stranger, listener.address(), &ExpectedPeer::Key(one.key()));
    assert!(error.contains("use the same on both"), "{error}");
    let cause = refusal(&listener);
    assert!(cause.contains("use the same on both"), "{cause}");
    let keyed = Ends::new(patient(), patient());
    let peer = ExpectedPeer::Name("node1".into());
    let error = connect_error(&one, keyed.listener.address(), &peer);
    assert!(error.contains("use the same on both"), "{error}");
    let mixed = DataEndpoint::new(TlsIdentity::generate().unwrap(), site.trust(), patient());
    let error = mixed.err().unwrap().to_string();
    assert!(
        error.contains("an authority needs a certificate on both ends"),
        "{error}"
    );
}

#[test]
fn bundle_of_a_stranger_never_arrives() {
    let ends = Ends::new(patient(), patient());
    let stranger = endpoint(PeerTrust::keys([ends.listening.key()]));
    let addresses = [ends.listener.address()];
    assert!(
        stranger
            .connect_bundle(&addresses, &ends.peer(), 3)
            .is_err()
    );
    let arrived = ends.listener.accept(Duration::from_millis(100));
    assert!(!matches!(
        arrived,
        Some(ArrivedLink::Bundle(_) | ArrivedLink::Link(_))
    ));
}
