//! Measures plain TCP, one connection, and a bundle over loopback: GiB a second, and processor
//! seconds for each GiB of both ends together.
//!
//! `cargo run --release -p driftless-dataplane --example throughput [GIB] [UNIT_KIB] [LINKS] [SOCKET_KIB]`

use driftless_dataplane::{
    ArrivedLink, BundleEvent, CipherChoice, DataEndpoint, Error, ExpectedPeer, LinkBundle,
    LinkSettings, PeerTrust, PortRange, TlsIdentity,
};
use rustix::time::{ClockId, clock_gettime};
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;
use std::time::{Duration, Instant};

const GIB: f64 = (1_u64 << 30) as f64;

fn processor_seconds() -> f64 {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    time.tv_sec as f64 + time.tv_nsec as f64 / 1e9
}

fn endpoints(settings: &LinkSettings) -> Result<(DataEndpoint, DataEndpoint), Error> {
    let (one, two) = (TlsIdentity::generate()?, TlsIdentity::generate()?);
    let trust = PeerTrust::keys([one.key(), two.key()]);
    Ok((
        DataEndpoint::new(one, trust.clone(), settings.clone())?,
        DataEndpoint::new(two, trust, settings.clone())?,
    ))
}

fn bundles(settings: &LinkSettings, links: u8) -> Result<(LinkBundle, LinkBundle), Error> {
    let (one, two) = endpoints(settings)?;
    let listener = one.listen(IpAddr::V4(Ipv4Addr::LOCALHOST), PortRange::ANY)?;
    let peer = ExpectedPeer::Key(one.key());
    let address: SocketAddr = listener.address();
    let connected = two.connect_bundle(&[address], &peer, links)?;
    match listener.accept(Duration::from_secs(60)) {
        Some(ArrivedLink::Bundle(arrived)) => Ok((connected, arrived)),
        _ => unreachable!("a bundle was connected"),
    }
}

fn report(name: &str, unit: usize, bytes: f64, begin: (Instant, f64)) {
    let (seconds, processor) = (
        begin.0.elapsed().as_secs_f64(),
        processor_seconds() - begin.1,
    );
    let gib = bytes / GIB;
    println!(
        "{name}, units of {} KiB: {:.2} GiB/s, {:.2} CPU s/GiB",
        unit >> 10,
        gib / seconds,
        processor / gib
    );
}

/// Sends `count` units without TLS, to show what the kernel takes.
fn measure_tcp(unit: usize, count: u64) -> std::io::Result<()> {
    let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))?;
    let mut connected = TcpStream::connect(listener.local_addr()?)?;
    let (mut arrived, _) = listener.accept()?;
    let begin = (Instant::now(), processor_seconds());
    thread::scope(|scope| {
        scope.spawn(move || {
            let bytes = vec![7; unit];
            (0..count).for_each(|_| connected.write_all(&bytes).expect("the peer receives"));
        });
        let mut bytes = vec![0; 128 << 10];
        while arrived.read(&mut bytes).expect("the peer sends") > 0 {}
    });
    report("plain TCP", unit, unit as f64 * count as f64, begin);
    Ok(())
}

/// Sends `count` units from one end to the other, or both ways at once.
fn measure_link(settings: &LinkSettings, unit: usize, count: u64, both: bool) -> Result<(), Error> {
    let (one, two) = endpoints(settings)?;
    let listener = one.listen(IpAddr::V4(Ipv4Addr::LOCALHOST), PortRange::ANY)?;
    let connected = two.connect(&[listener.address()], &ExpectedPeer::Key(one.key()))?;
    let Some(ArrivedLink::Link(arrived)) = listener.accept(Duration::from_secs(60)) else {
        unreachable!("a link was connected")
    };
    let name = format!(
        "{}{}",
        connected.peer().cipher,
        if both { " both ways" } else { "" }
    );
    let begin = (Instant::now(), processor_seconds());
    thread::scope(|scope| {
        for (link, sends) in [(connected, true), (arrived, both)] {
            let (sender, mut receiver) = link.split();
            scope.spawn(move || {
                let bytes = vec![7; unit];
                for _ in 0..if sends { count } else { 0 } {
                    sender.send(1, &[&bytes]).expect("the peer receives");
                }
                sender.finish().expect("the peer receives");
            });
            scope.spawn(move || while receiver.recv().expect("the peer sends").is_some() {});
        }
    });
    let directions = if both { 2.0 } else { 1.0 };
    report(&name, unit, directions * unit as f64 * count as f64, begin);
    Ok(())
}

fn measure_bundle(
    settings: &LinkSettings,
    unit: usize,
    count: u64,
    links: u8,
) -> Result<(), Error> {
    let (connected, arrived) = bundles(settings, links)?;
    let name = format!("{} over {links} connections", connected.peer().cipher);
    let ((sender, mut back), (quiet, mut receiver)) = (connected.split()?, arrived.split()?);
    let begin = (Instant::now(), processor_seconds());
    let sending = thread::spawn(move || {
        let bytes = Arc::new(vec![7; unit]);
        for number in 0..count {
            sender
                .send_block(1, number, Arc::clone(&bytes))
                .expect("the peer receives");
        }
        sender.finish()
    });
    let mut received = 0;
    while let Some(BundleEvent::Block { .. }) = receiver.recv()? {
        received += 1;
    }
    assert_eq!(received, count);
    report(&name, unit, unit as f64 * count as f64, begin);
    sending.join().expect("no panic")?;
    quiet.finish()?;
    assert_eq!(back.recv()?, None);
    Ok(())
}

fn main() -> Result<(), Error> {
    let numbers: Vec<u64> = std::env::args()
        .skip(1)
        .filter_map(|text| text.parse().ok())
        .collect();
    let number = |at: usize, default| numbers.get(at).copied().unwrap_or(default);
    let (gib, unit) = (number(0, 4), number(1, 64) << 10);
    let count = (gib << 30) / unit;
    let unit = usize::try_from(unit).expect("a size");
    let links = u8::try_from(number(2, 2)).expect("a few connections");
    let socket_kib = numbers.get(3).and_then(|kib| usize::try_from(*kib).ok());
    measure_tcp(unit, count).expect("loopback works");
    for cipher in [CipherChoice::Aes128Gcm, CipherChoice::ChaCha20Poly1305] {
        let settings = LinkSettings {
            cipher,
            silence_max: Duration::from_secs(60),
            socket_buffer_bytes: socket_kib.map(|kib| kib << 10),
            ..LinkSettings::default()
        };
        measure_link(&settings, unit, count, false)?;
        measure_link(&settings, unit, count, true)?;
        measure_bundle(&settings, unit, count, links)?;
    }
    Ok(())
}
