//! A node whose coordinator and feeders are played by the test, well-behaved or not.
#![allow(clippy::disallowed_methods)]

use super::host::{CommandRule, NodeHost, PlaceRule, link_settings, open_store};
use super::serve::NodeServer;
use crate::message::{
    CastBrief, CastId, CastPeer, NodeMessage, NodeOrder, PROTOCOL, PeerOpening, TrunkMessage,
    WirePlace, decode, encode, kind,
};
use crate::{NodeSettings, TransferSettings};
use driftless_dataplane::{
    ArrivedLink, BundleEvent, BundleReceiver, BundleSender, DataEndpoint, ExpectedPeer, LinkBundle,
    LinkListener, PeerKey, PeerTrust, PortRange, TlsIdentity,
};
use driftless_model::Keep;
use driftless_planner::{NodeId, OrderAction, StreamCause, StreamId, UnitSet};
use driftless_store::{BuildOptions, BuiltSet, Catalogue, CopyRights, SetHash};
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Longest wait for an event.
const LONG: Duration = Duration::from_secs(60);
const STREAM: StreamId = StreamId(1);
const FEEDER: NodeId = NodeId(2);

/// Returns limits for a machine that is busy with other tests.
fn patient() -> TransferSettings {
    TransferSettings {
        silence_max: Duration::from_secs(5),
        ..TransferSettings::default()
    }
}

/// A process that the test plays.
struct Player {
    endpoint: DataEndpoint,
}

/// A connection of a player.
struct PlayedLink {
    sender: BundleSender,
    receiver: BundleReceiver,
}

impl Player {
    fn new(node: Option<PeerKey>) -> Player {
        let identity = TlsIdentity::generate().expect("a key");
        let trust = PeerTrust::keys(node);
        let settings = link_settings(&patient());
        let endpoint = DataEndpoint::new(identity, trust, settings).expect("an endpoint");
        Player { endpoint }
    }

    fn key(&self) -> PeerKey {
        self.endpoint.key()
    }

    fn connect(&self, node: &TestNode) -> Result<PlayedLink, String> {
        self.endpoint.trust().trust(node.key);
        let peer = ExpectedPeer::Key(node.key);
        let link = self.endpoint.connect(&[node.address], &peer);
        let link = link.map_err(|error| error.to_string())?;
        let (sender, receiver) = LinkBundle::from(link).split().expect("halves");
        Ok(PlayedLink { sender, receiver })
    }

    /// Connects as a coordinator.
    fn control(&self, node: &TestNode) -> PlayedLink {
        let mut link = self.connect(node).expect("a connection");
        let opening = PeerOpening::Control { protocol: PROTOCOL };
        link.sender
            .send_control(kind::OPENING, &[&encode(&opening)])
            .expect("sent");
        assert!(matches!(link.hear(), NodeMessage::Welcome { .. }));
        link
    }

    /// Connects as a node of a cast. The node may trust the key a moment later.
    fn trusted(&self, node: &TestNode) -> PlayedLink {
        let begin = Instant::now();
        loop {
            match self.connect(node) {
                Ok(link) => return link,
                Err(error) => assert!(begin.elapsed() < LONG, "{error}"),
            }
        }
    }

    /// Connects as the feeder of a stream.
    fn trunk(&self, node: &TestNode, cast: CastId, stream: StreamId) -> PlayedLink {
        let link = self.trusted(node);
        let opening = PeerOpening::Trunk {
            protocol: PROTOCOL,
            cast,
            stream,
        };
        link.sender
            .send_control(kind::OPENING, &[&encode(&opening)])
            .expect("sent");
        link
    }
}

impl PlayedLink {
    fn order(&self, order: &NodeOrder) {
        let sent = self.sender.send_control(kind::ORDER, &[&encode(order)]);
        sent.expect("sent");
    }

    /// Returns the next message of the node.
    fn hear(&mut self) -> NodeMessage {
        match self.receiver.recv() {
            Ok(Some(BundleEvent::Control(message))) => decode(&message.bytes).expect("a message"),
            other => panic!("the node sent {other:?}"),
        }
    }

    /// Returns the first message that matches.
    fn wait(&mut self, is_it: impl Fn(&NodeMessage) -> bool) -> NodeMessage {
        loop {
            let message = self.hear();
            if is_it(&message) {
                return message;
            }
        }
    }

    /// Returns the units that the node wants.
    fn want(&mut self) -> TrunkMessage {
        match self.receiver.recv() {
            Ok(Some(BundleEvent::Control(message))) => decode(&message.bytes).expect("a message"),
            other => panic!("the node sent {other:?}"),
        }
    }

    /// Begins a cast, sends the catalogue, and waits until the node is ready.
    fn begin(&mut self, cast: CastId, catalogue: &Catalogue) {
        self.brief(cast, catalogue, WirePlace::Cache);
        self.get_ready(catalogue);
    }

    /// Begins a cast.
    fn brief(&self, cast: CastId, catalogue: &Catalogue, place: WirePlace) {
        self.order(&NodeOrder::Begin(CastBrief {
            cast,
            set: catalogue.hash(),
            place,
            job: None,
            is_pinned: false,
            seconds_max: None,
            reader: None,
            has_outbox: false,
            bytes_per_second_max: None,
            connections: 1,
        }));
    }

    /// Sends the catalogue if the node lacks it, and waits until the node is ready.
    fn get_ready(&mut self, catalogue: &Catalogue) {
        loop {
            match self.hear() {
                NodeMessage::LacksCatalogue => self.send_parts(0, catalogue),
                NodeMessage::HasCatalogue => {}
                NodeMessage::Ready { .. } => return,
                other => panic!("the node sent {other:?}"),
            }
        }
    }

    /// Sends the parts of a catalogue from the first one on.
    fn send_parts(&self, first: u32, catalogue: &Catalogue) {
        for number in first..catalogue.parts() {
            let part = catalogue.part(number).expect("a part");
            let number = number.to_le_bytes();
            let sent = self.sender.send_control(kind::PART, &[&number, &part]);
            sent.expect("sent");
        }
    }

    /// Introduces a feeder.
    fn introduce(&self, feeder: &Player) {
        self.introduce_at(feeder, Vec::new());
    }

    /// Introduces a feeder that listens.
    fn introduce_at(&self, feeder: &Player, addresses: Vec<SocketAddr>) {
        self.order(&NodeOrder::Peers(vec![CastPeer {
            node: FEEDER,
            key: *feeder.key().as_bytes(),
            addresses,
        }]));
    }

    /// Orders the node to fetch the catalogue of a cast from a giver.
    fn order_fetch(&mut self, cast: CastId, catalogue: &Catalogue, from: &Giver, limit: Duration) {
        self.brief(cast, catalogue, WirePlace::Cache);
        assert_eq!(self.hear(), NodeMessage::LacksCatalogue);
        self.introduce_at(&from.player, vec![from.listener.address()]);
        self.order(&NodeOrder::FetchCatalogue {
            from: FEEDER,
            milliseconds: limit.as_millis().try_into().expect("a number"),
        });
    }

    fn expect(&self, stream: StreamId, units: UnitSet) {
        self.order(&NodeOrder::Plan(OrderAction::Expect {
            stream,
            from: FEEDER,
            units,
        }));
    }
}

/// A node in threads of the test, and a set to send.
struct TestNode {
    folder: tempfile::TempDir,
    key: PeerKey,
    address: SocketAddr,
    coordinator: Player,
    built: BuiltSet,
    stop: Arc<AtomicBool>,
    serving: Option<JoinHandle<()>>,
}

impl TestNode {
    fn new() -> TestNode {
        let folder = driftless_testkit::scratch::scratch_folder();
        let path = |name: &str| folder.path().join(name);
        std::fs::create_dir(path("src")).expect("a folder");
        for number in 0..4_u8 {
            // Zeros would be there before they are received.
            let content = vec![number + 1; 200_000];
            std::fs::write(path("src").join(number.to_string()), content).expect("a file");
        }
        let built = build(&path("origin"), &path("src"));
        let coordinator = Player::new(None);
        let settings = NodeSettings {
            transfer: patient(),
            ..NodeSettings::new(path("store"))
        };
        let trust = PeerTrust::keys([coordinator.key()]);
        let identity = TlsIdentity::generate().expect("a key");
        let endpoint = DataEndpoint::new(identity, trust, link_settings(&settings.transfer));
        let endpoint = endpoint.expect("an endpoint");
        let listening = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let listener = endpoint
            .listen(listening, settings.ports)
            .expect("a listener");
        let (key, address) = (endpoint.key(), listener.address());
        let rules = (
            CommandRule::Keys(vec![coordinator.key()]),
            PlaceRule::Below(vec![path("to")]),
        );
        let store = open_store(&settings.dir).expect("a store");
        let host = NodeHost::new(store, endpoint, settings, rules);
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let serve = move || NodeServer::new(&host).run(&listener, &|_| stopped.load(Relaxed));
        let serving = std::thread::spawn(serve);
        TestNode {
            folder,
            key,
            address,
            coordinator,
            built,
            stop,
            serving: Some(serving),
        }
    }

    fn copy(&self) -> PathBuf {
        let set = self.built.catalogue.hash().to_string();
        self.folder.path().join("store/sets").join(set).join("src")
    }

    fn unit(&self, unit: u64) -> Arc<Vec<u8>> {
        let mut bytes = Vec::new();
        let read = self.built.source.reader().read(unit, &mut bytes);
        read.expect("a unit");
        Arc::new(bytes)
    }

    fn all(&self) -> UnitSet {
        UnitSet::first(self.built.catalogue.units())
    }

    /// Sends each unit, and waits until the node has committed the set.
    fn complete(&self, control: &mut PlayedLink, trunk: &PlayedLink) {
        for unit in 0..self.built.catalogue.units() {
            let sent = trunk.sender.send_block(0, unit, self.unit(unit));
            sent.expect("sent");
        }
        let finished = control.wait(|message| matches!(message, NodeMessage::Finished(_)));
        let root = self.built.catalogue.hash();
        assert!(matches!(finished, NodeMessage::Finished(copy) if copy.root == root));
        assert!(self.copy().is_dir());
    }
}

fn build(dir: &std::path::Path, source: &std::path::Path) -> BuiltSet {
    let store = open_store(dir).expect("a store");
    let mut options = BuildOptions {
        keep: Keep::default(),
        rights: CopyRights::OfSource,
        user: 0,
        pace: &mut |_| true,
    };
    let built = store.build(&vec![source.to_owned()].into(), &mut options);
    built.expect("a set")
}

impl Drop for TestNode {
    fn drop(&mut self) {
        self.stop.store(true, Relaxed);
        if let Some(serving) = self.serving.take() {
            let _panic_was_printed = serving.join();
        }
    }
}

#[test]
fn peer_that_may_not_command_reads_the_end() {
    let node = TestNode::new();
    let (feeder, cast) = (Player::new(None), CastId([1; 16]));
    let mut control = node.coordinator.control(&node);
    control.begin(cast, &node.built.catalogue);
    control.introduce(&feeder);
    let mut link = feeder.trusted(&node);
    let opening = PeerOpening::Control { protocol: PROTOCOL };
    let sent = link
        .sender
        .send_control(kind::OPENING, &[&encode(&opening)]);
    sent.expect("sent");
    assert!(matches!(link.receiver.recv(), Ok(None)));
}

#[test]
fn trunk_before_its_order_is_kept() {
    let node = TestNode::new();
    let (feeder, cast) = (Player::new(None), CastId([1; 16]));
    let mut control = node.coordinator.control(&node);
    control.begin(cast, &node.built.catalogue);
    control.introduce(&feeder);
    let mut trunk = feeder.trunk(&node, cast, STREAM);
    // The node has the connection, and no order.
    std::thread::sleep(Duration::from_millis(300));
    control.expect(STREAM, node.all());
    assert_eq!(trunk.want(), TrunkMessage::Want(node.all()));
    node.complete(&mut control, &trunk);
}

#[test]
fn trunk_without_an_order_is_no_accusation() {
    let node = TestNode::new();
    let (feeder, cast) = (Player::new(None), CastId([1; 16]));
    let mut control = node.coordinator.control(&node);
    control.begin(cast, &node.built.catalogue);
    control.introduce(&feeder);
    let mut late = feeder.trunk(&node, cast, StreamId(9));
    assert_eq!(late.want(), TrunkMessage::Unknown);
    let mut other = feeder.trunk(&node, CastId([2; 16]), STREAM);
    assert_eq!(other.want(), TrunkMessage::Unknown);
    control.expect(STREAM, node.all());
    let first = control.hear();
    assert!(matches!(first, NodeMessage::Progress { .. }), "{first:?}");
}

#[test]
fn corrupted_unit_is_reported_and_never_published() {
    let node = TestNode::new();
    let (liar, cast) = (Player::new(None), CastId([1; 16]));
    let mut control = node.coordinator.control(&node);
    control.begin(cast, &node.built.catalogue);
    control.introduce(&liar);
    control.expect(STREAM, node.all());
    let mut trunk = liar.trunk(&node, cast, STREAM);
    assert!(matches!(trunk.want(), TrunkMessage::Want(_)));
    let mut wrong = node.unit(1).to_vec();
    wrong[7] ^= 1;
    let sent = trunk.sender.send_block(0, 0, node.unit(0));
    sent.expect("sent");
    let sent = trunk.sender.send_block(0, 1, Arc::new(wrong));
    sent.expect("sent");
    let failed = control.wait(|message| matches!(message, NodeMessage::StreamFailed { .. }));
    assert!(matches!(
        failed,
        NodeMessage::StreamFailed {
            stream: STREAM,
            cause: StreamCause::BadUnits,
            ..
        }
    ));
    assert!(!node.copy().exists());
    // Another stream brings the rest.
    let second = StreamId(2);
    control.expect(second, node.all());
    let trunk = liar.trunk(&node, cast, second);
    for unit in 1..node.built.catalogue.units() {
        let sent = trunk.sender.send_block(0, unit, node.unit(unit));
        sent.expect("sent");
    }
    control.wait(|message| matches!(message, NodeMessage::Finished(_)));
}

#[test]
fn stream_of_another_key_is_refused() {
    let node = TestNode::new();
    let (feeder, thief, cast) = (Player::new(None), Player::new(None), CastId([1; 16]));
    let mut control = node.coordinator.control(&node);
    control.begin(cast, &node.built.catalogue);
    control.introduce(&feeder);
    control.order(&NodeOrder::Peers(vec![CastPeer {
        node: NodeId(3),
        key: *thief.key().as_bytes(),
        addresses: Vec::new(),
    }]));
    control.expect(STREAM, node.all());
    assert_eq!(
        thief.trunk(&node, cast, STREAM).want(),
        TrunkMessage::Unknown
    );
    let trunk = feeder.trunk(&node, cast, STREAM);
    node.complete(&mut control, &trunk);
}

#[test]
fn strangers_are_refused() {
    let node = TestNode::new();
    let stranger = Player::new(None);
    assert!(stranger.connect(&node).is_err());
    // A feeder of a cast is no coordinator.
    let mut control = node.coordinator.control(&node);
    control.begin(CastId([1; 16]), &node.built.catalogue);
    control.introduce(&stranger);
    let mut link = stranger.trusted(&node);
    let opening = PeerOpening::Control { protocol: PROTOCOL };
    let sent = link
        .sender
        .send_control(kind::OPENING, &[&encode(&opening)]);
    sent.expect("sent");
    assert!(!matches!(link.receiver.recv(), Ok(Some(_))));
    // The key of a feeder is worth nothing after the cast.
    control.order(&NodeOrder::End);
    let begin = Instant::now();
    while stranger.connect(&node).is_ok() {
        assert!(begin.elapsed() < LONG, "the node still trusts the feeder");
    }
}

#[test]
fn place_outside_the_configuration_is_refused() {
    let node = TestNode::new();
    for place in [&b"/etc"[..], b"relative", b"/x/to/../../etc"] {
        let mut control = node.coordinator.control(&node);
        let place = WirePlace::Directory(place.to_vec());
        control.brief(CastId([1; 16]), &node.built.catalogue, place);
        let failed = control.hear();
        assert!(matches!(failed, NodeMessage::Failed { .. }), "{failed:?}");
        control.order(&NodeOrder::End);
        while control.receiver.recv().is_ok_and(|event| event.is_some()) {}
    }
}

#[test]
fn next_cast_follows_a_dead_coordinator() {
    let node = TestNode::new();
    let (feeder, cast) = (Player::new(None), CastId([1; 16]));
    let mut control = node.coordinator.control(&node);
    control.begin(cast, &node.built.catalogue);
    control.introduce(&feeder);
    control.expect(STREAM, node.all());
    let trunk = feeder.trunk(&node, cast, STREAM);
    let sent = trunk.sender.send_block(0, 2, node.unit(2));
    sent.expect("sent");
    control.wait(
        |message| matches!(message, NodeMessage::Progress { verified, .. } if !verified.is_empty()),
    );
    drop((control, trunk));
    // The node keeps the unit, and its lock is free again.
    let cast = CastId([2; 16]);
    let mut control = node.coordinator.control(&node);
    control.begin(cast, &node.built.catalogue);
    control.introduce(&feeder);
    control.expect(STREAM, node.all());
    let mut trunk = feeder.trunk(&node, cast, STREAM);
    let lacking = node.all().subtract(&UnitSet::range(2, 3));
    assert_eq!(trunk.want(), TrunkMessage::Want(lacking));
}

#[test]
fn nonsense_of_a_coordinator_ends_its_session() {
    let node = TestNode::new();
    for (kind, bytes) in [
        (kind::ORDER, &[255_u8; 9][..]),
        (kind::PART, &[1]),
        (99, b""),
    ] {
        let mut control = node.coordinator.control(&node);
        let sent = control.sender.send_control(kind, &[bytes]);
        sent.expect("sent");
        while control.receiver.recv().is_ok_and(|event| event.is_some()) {}
    }
    let mut control = node.coordinator.control(&node);
    control.begin(CastId([1; 16]), &node.built.catalogue);
}

/// A giver of a catalogue that listens.
struct Giver {
    player: Player,
    listener: LinkListener,
}

impl Giver {
    fn new(node: &TestNode) -> Giver {
        let player = Player::new(Some(node.key));
        let listening = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let listener = player.endpoint.listen(listening, PortRange::ANY);
        let listener = listener.expect("a listener");
        Giver { player, listener }
    }

    /// Returns the connection of the node that asks for the catalogue.
    fn asked(&self, cast: CastId, catalogue: &Catalogue) -> PlayedLink {
        let arrived = self.listener.accept(LONG).expect("a connection");
        let bundle = match arrived {
            ArrivedLink::Link(link) => LinkBundle::from(link),
            ArrivedLink::Bundle(bundle) => bundle,
        };
        let (sender, mut receiver) = bundle.split().expect("halves");
        let opening = match receiver.recv() {
            Ok(Some(BundleEvent::Control(message))) => decode::<PeerOpening>(&message.bytes),
            other => panic!("the node sent {other:?}"),
        };
        let expected = PeerOpening::Catalogue {
            protocol: PROTOCOL,
            cast,
            set: catalogue.hash(),
        };
        assert_eq!(opening, Ok(expected));
        PlayedLink { sender, receiver }
    }
}

#[test]
fn catalogue_is_fetched_from_another_node() {
    let node = TestNode::new();
    let (giver, cast) = (Giver::new(&node), CastId([1; 16]));
    let catalogue = &node.built.catalogue;
    let mut control = node.coordinator.control(&node);
    control.order_fetch(cast, catalogue, &giver, LONG);
    giver.asked(cast, catalogue).send_parts(0, catalogue);
    assert_eq!(control.hear(), NodeMessage::HasCatalogue);
    control.get_ready(catalogue);
}

#[test]
fn bad_givers_are_replaced_by_the_coordinator() {
    let node = TestNode::new();
    let catalogue = &node.built.catalogue;
    let all = vec![(0, u32::MAX)];
    let rest = vec![(1, catalogue.parts())];
    for (number, lacking) in [(1, all.clone()), (2, rest.clone()), (3, rest), (4, all)] {
        let (giver, cast) = (Giver::new(&node), CastId([number; 16]));
        let mut control = node.coordinator.control(&node);
        // The first giver is silent.
        let limit = if number == 1 {
            patient().silence_max
        } else {
            LONG
        };
        control.order_fetch(cast, catalogue, &giver, limit);
        let link = giver.asked(cast, catalogue);
        let head = catalogue.part(0).expect("a part");
        let send = |part: u32, bytes: &[u8]| {
            let sent = link
                .sender
                .send_control(kind::PART, &[&part.to_le_bytes(), bytes]);
            sent.expect("sent");
        };
        match number {
            1 => {}
            2 => {
                send(0, &head);
                send(1, b"a lie");
            }
            3 => {
                send(0, &head);
                let _the_giver_is_gone = link.sender.finish();
            }
            _ => send(0, b"a lie"),
        }
        match control.hear() {
            NodeMessage::CatalogueFailed { parts, .. } => assert_eq!(parts, lacking),
            other => panic!("the node sent {other:?}"),
        }
        // The node stays without the catalogue, so that the next giver is asked, too.
        control.order(&NodeOrder::End);
        while control.receiver.recv().is_ok_and(|event| event.is_some()) {}
    }
    let mut control = node.coordinator.control(&node);
    let mut gone = Giver::new(&node);
    gone.player = Player::new(None);
    control.order_fetch(CastId([5; 16]), catalogue, &gone, LONG);
    let failed = control.hear();
    assert!(
        matches!(failed, NodeMessage::CatalogueFailed { .. }),
        "{failed:?}"
    );
    control.send_parts(0, catalogue);
    control.get_ready(catalogue);
}

#[test]
fn catalogue_is_given_within_its_cast_alone() {
    let node = TestNode::new();
    let (peer, cast) = (Player::new(None), CastId([1; 16]));
    let catalogue = &node.built.catalogue;
    let mut control = node.coordinator.control(&node);
    control.begin(cast, catalogue);
    control.introduce(&peer);
    let ask = |cast: CastId, set: SetHash| {
        let link = peer.trusted(&node);
        let opening = PeerOpening::Catalogue {
            protocol: PROTOCOL,
            cast,
            set,
        };
        let sent = link
            .sender
            .send_control(kind::OPENING, &[&encode(&opening)]);
        sent.expect("sent");
        link
    };
    let mut link = ask(cast, catalogue.hash());
    for number in 0..catalogue.parts() {
        let part = catalogue.part(number).expect("a part");
        match link.receiver.recv() {
            Ok(Some(BundleEvent::Control(message))) => {
                assert_eq!(message.bytes, [&number.to_le_bytes()[..], &part].concat());
            }
            other => panic!("the node sent {other:?}"),
        }
    }
    for (cast, set) in [
        (CastId([2; 16]), catalogue.hash()),
        (cast, SetHash([9; 32])),
    ] {
        let event = ask(cast, set).receiver.recv();
        assert!(!matches!(event, Ok(Some(_))), "{event:?}");
    }
}

#[test]
fn node_stops_beside_an_idle_coordinator() {
    let mut node = TestNode::new();
    let _idle = node.coordinator.control(&node);
    node.stop.store(true, Relaxed);
    let serving = node.serving.take().expect("it serves");
    let begin = Instant::now();
    while !serving.is_finished() {
        assert!(begin.elapsed() < LONG, "it waits for an order");
        std::thread::sleep(Duration::from_millis(10));
    }
}
