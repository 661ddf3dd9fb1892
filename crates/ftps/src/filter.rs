//! Filter of the kernel for a port of a data connection: it drops packets of other addresses.
//!
//! libunftp 0.24 accepts one connection for each port, and then compares its address. Without the
//! filter, a stranger who connects to the passive ports makes the transfers of users fail.

use socket2::{SockFilter, SockRef};
use std::io;
use std::net::IpAddr;
use std::os::fd::AsFd;

/// Begin of the network header (linux/filter.h, `SKF_NET_OFF`).
const NETWORK_HEADER: u32 = 0xfff0_0000;
/// Offset of the source address in a header of IPv4 (RFC 791).
const SOURCE_V4: u32 = 12;
/// Offset of the source address in a header of IPv6 (RFC 8200).
const SOURCE_V6: u32 = 8;
/// Load of a word (linux/bpf_common.h, `BPF_LD | BPF_W | BPF_ABS`).
const LOAD: u16 = 0x20;
/// Comparison with a constant (`BPF_JMP | BPF_JEQ | BPF_K`).
const COMPARE: u16 = 0x15;
/// Return of a constant (`BPF_RET | BPF_K`): the bytes of the packet to keep.
const RETURN: u16 = 0x06;

/// Has the kernel drop all packets to a socket that do not come from `client`.
pub fn allow_only(client: IpAddr, socket: &impl AsFd) -> io::Result<()> {
    SockRef::from(socket).attach_filter(&program(client))
}

fn program(client: IpAddr) -> Vec<SockFilter> {
    let (offset, bytes) = match client {
        IpAddr::V4(address) => (SOURCE_V4, address.octets().to_vec()),
        IpAddr::V6(address) => (SOURCE_V6, address.octets().to_vec()),
    };
    let mut program = Vec::new();
    let words = bytes.chunks_exact(4).map(|word| word.iter());
    let words: Vec<u32> = words
        .map(|word| word.fold(0, |sum, byte| sum << 8 | u32::from(*byte)))
        .collect();
    let mut at = NETWORK_HEADER + offset;
    for (index, word) in words.iter().enumerate() {
        // A word that differs jumps behind the comparisons that follow, to the drop.
        let following = u8::try_from(words.len() - 1 - index).unwrap_or_default();
        program.push(SockFilter::new(LOAD, 0, 0, at));
        program.push(SockFilter::new(COMPARE, 0, 2 * following + 1, *word));
        at += 4;
    }
    program.push(SockFilter::new(RETURN, 0, 0, u32::MAX));
    program.push(SockFilter::new(RETURN, 0, 0, 0));
    program
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::ErrorKind;
    use std::net::{Ipv6Addr, SocketAddr, TcpListener, TcpStream};
    use std::time::Duration;

    const WAIT: Duration = Duration::from_millis(300);

    #[test]
    fn stranger_cannot_take_the_port_of_a_client() {
        let rows: [(&str, IpAddr, bool); 4] = [
            ("127.0.0.1:0", IpAddr::from([127, 0, 0, 1]), true),
            ("127.0.0.1:0", IpAddr::from([127, 0, 0, 3]), false),
            ("[::1]:0", IpAddr::V6(Ipv6Addr::LOCALHOST), true),
            ("[::1]:0", "::2".parse().unwrap(), false),
        ];
        for (local, client, expected) in rows {
            let listener = match TcpListener::bind(local) {
                // A host without IPv6.
                Err(error) if error.kind() == ErrorKind::AddrNotAvailable => continue,
                listener => listener.unwrap(),
            };
            allow_only(client, &listener).unwrap();
            let address: SocketAddr = listener.local_addr().unwrap();
            let connected = TcpStream::connect_timeout(&address, WAIT);
            assert_eq!(connected.is_ok(), expected, "{local} for {client}");
        }
    }
}
