//! Sockets with the options that bulk data needs, set before the kernel fixes the window scale
//! (tcp(7): buffer sizes must be set before connect(2) or listen(2)).

use crate::wire::wait_for;
use crate::{LinkSettings, PortRange};
use rustix::event::PollFlags;
use rustix::io::Errno;
use rustix::net::sockopt::{
    set_ipv6_v6only, set_socket_recv_buffer_size, set_socket_reuseaddr,
    set_socket_send_buffer_size, set_tcp_nodelay, socket_error,
};
use rustix::net::{AddressFamily, SocketFlags, SocketType, bind, connect, listen, socket_with};
use std::io;
use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::os::fd::OwnedFd;
use std::time::Duration;

/// Connections that the kernel completes before the listener takes them (listen(2)). The kernel
/// lowers it to `net.core.somaxconn`.
const BACKLOG: i32 = 1024;

fn socket(address: IpAddr, settings: &LinkSettings, flags: SocketFlags) -> io::Result<OwnedFd> {
    let family = match address {
        IpAddr::V4(_) => AddressFamily::INET,
        IpAddr::V6(_) => AddressFamily::INET6,
    };
    let socket = socket_with(
        family,
        SocketType::STREAM,
        flags | SocketFlags::CLOEXEC,
        None,
    )?;
    if let Some(bytes) = settings.socket_buffer_bytes {
        set_socket_recv_buffer_size(&socket, bytes)?;
        set_socket_send_buffer_size(&socket, bytes)?;
    }
    Ok(socket)
}

/// Returns an address with IPv4 in its own form, where a socket of both families has mapped it to
/// IPv6 (ipv6(7)). A link-local address keeps its interface.
pub(crate) fn canonical(address: SocketAddr) -> SocketAddr {
    match address.ip().to_canonical() {
        ip @ IpAddr::V4(_) => SocketAddr::new(ip, address.port()),
        IpAddr::V6(_) => address,
    }
}

/// Sets the options of a connected socket.
pub(crate) fn prepare(stream: &TcpStream) -> io::Result<()> {
    stream.set_nonblocking(true)?;
    set_tcp_nodelay(stream, true)?;
    Ok(())
}

/// Connects to an address.
pub(crate) fn connect_to(
    address: SocketAddr,
    settings: &LinkSettings,
    limit: Duration,
) -> io::Result<TcpStream> {
    let socket = socket(address.ip(), settings, SocketFlags::NONBLOCK)?;
    let begun = connect(&socket, &address);
    let stream = TcpStream::from(socket);
    match begun {
        Err(Errno::INPROGRESS) if !wait_for(&stream, PollFlags::OUT, limit)? => {
            return Err(Errno::TIMEDOUT.into());
        }
        Err(Errno::INPROGRESS) => socket_error(&stream)??,
        begun => begun?,
    }
    prepare(&stream)?;
    Ok(stream)
}

/// Listens on the first free port. An unspecified IPv6 address takes IPv4 connections, too.
pub(crate) fn listen_on(
    address: IpAddr,
    ports: PortRange,
    settings: &LinkSettings,
) -> io::Result<TcpListener> {
    let mut taken = None;
    for port in ports.candidates() {
        match listen_at(SocketAddr::new(address, port), settings) {
            Err(error) if error.kind() == io::ErrorKind::AddrInUse => taken = Some(error),
            result => return result,
        }
    }
    Err(taken.unwrap_or_else(|| io::ErrorKind::AddrInUse.into()))
}

fn listen_at(address: SocketAddr, settings: &LinkSettings) -> io::Result<TcpListener> {
    let socket = socket(address.ip(), settings, SocketFlags::empty())?;
    set_socket_reuseaddr(&socket, true)?;
    if address.is_ipv6() {
        set_ipv6_v6only(&socket, false)?;
    }
    bind(&socket, &address)?;
    listen(&socket, BACKLOG)?;
    Ok(socket.into())
}

#[cfg(test)]
mod tests {
    use super::canonical;
    use std::net::SocketAddr;

    #[test]
    fn mapped_address_becomes_ipv4() {
        for (from, to) in [
            ("[::ffff:192.0.2.1]:7", "192.0.2.1:7"),
            ("192.0.2.1:7", "192.0.2.1:7"),
            ("[fe80::1%3]:7", "[fe80::1%3]:7"),
        ] {
            let address: SocketAddr = from.parse().unwrap();
            assert_eq!(canonical(address).to_string(), to);
        }
    }
}
