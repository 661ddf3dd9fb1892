//! A server for metrics: it answers one GET per connection, and nothing else.
//!
//! Whoever can reach the port may ask, and may mean ill: a request has a length and a time, and so
//! many are answered at once. What is asked can change nothing.

use std::io::{self, Read, Write};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread::{self, Builder};
use std::time::{Duration, Instant};

/// Bytes of a request.
const REQUEST_BYTES_MAX: usize = 8 << 10;
/// From a connection to the end of its request, and for each part of the answer.
const PATIENCE: Duration = Duration::from_secs(5);
/// Connections at the same time; others are closed at once.
const CONNECTIONS_MAX: usize = 16;
/// After a connection could not be taken (no descriptors are left, say).
const PAUSE: Duration = Duration::from_millis(100);
/// The version of the format (prometheus.io/docs/instrumenting/exposition_formats).
const FORMAT: &str = "text/plain; version=0.0.4; charset=utf-8";

/// What is told now; it may take that long at most. `None` if it cannot be told.
type Told = dyn Fn(Duration) -> Option<String> + Send + Sync;

/// Begins to answer at an address; returns the one that it has, should the port have been 0. `told`
/// is asked what to tell, and how long it may take; `None` if that cannot be told.
///
/// # Errors
/// Nobody can listen there.
pub fn listen(
    address: SocketAddr,
    told: impl Fn(Duration) -> Option<String> + Send + Sync + 'static,
) -> io::Result<SocketAddr> {
    let listener = TcpListener::bind(address)?;
    let address = listener.local_addr()?;
    let told: Arc<Told> = Arc::new(told);
    let serve = move || serve(&listener, &told);
    Builder::new().name("metrics".into()).spawn(serve)?;
    Ok(address)
}

/// Looks whether somebody could listen at an address now.
///
/// # Errors
/// Nobody can.
pub fn check(address: SocketAddr) -> io::Result<()> {
    TcpListener::bind(address).map(drop)
}

fn serve(listener: &TcpListener, told: &Arc<Told>) {
    // A connection that is being answered holds one of these.
    let places = Arc::new(());
    for stream in listener.incoming() {
        let Ok(stream) = stream else {
            thread::sleep(PAUSE);
            continue;
        };
        if Arc::strong_count(&places) > CONNECTIONS_MAX {
            continue;
        }
        let (place, told) = (places.clone(), told.clone());
        let answer = move || {
            let _place = place;
            let _it_may_have_hung_up = answer(stream, &*told);
        };
        let _without_a_thread_it_is_closed = Builder::new().name("metrics".into()).spawn(answer);
    }
}

fn answer(mut stream: TcpStream, told: &Told) -> io::Result<()> {
    let deadline = Instant::now() + PATIENCE;
    let (status, kind, body) = match asked(&mut stream, deadline)? {
        Asked::Metrics => match told(PATIENCE) {
            Some(text) => ("200 OK", FORMAT, text),
            None => plain("503 Service Unavailable", "it does not answer"),
        },
        Asked::Other => plain("404 Not Found", "metrics are at /metrics"),
        Asked::NoGet => plain("405 Method Not Allowed", "GET is answered"),
        Asked::Nonsense => plain("400 Bad Request", "no request of HTTP"),
    };
    stream.set_write_timeout(Some(PATIENCE))?;
    let length = body.len();
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    stream.write_all(body.as_bytes())
}

fn plain(status: &'static str, text: &str) -> (&'static str, &'static str, String) {
    (status, "text/plain; charset=utf-8", format!("{text}\n"))
}

#[derive(Debug, PartialEq, Eq)]
enum Asked {
    Metrics,
    Other,
    NoGet,
    Nonsense,
}

/// Reads a request to the end of its head.
fn asked(stream: &mut TcpStream, deadline: Instant) -> io::Result<Asked> {
    let mut request = Vec::new();
    let mut part = [0; 1024];
    while !request.windows(4).any(|four| four == b"\r\n\r\n") {
        let left = deadline.saturating_duration_since(Instant::now());
        if left.is_zero() {
            return Err(io::ErrorKind::TimedOut.into());
        }
        stream.set_read_timeout(Some(left))?;
        let count = stream.read(&mut part)?;
        request.extend_from_slice(&part[..count]);
        if count == 0 || request.len() > REQUEST_BYTES_MAX {
            return Ok(Asked::Nonsense);
        }
    }
    Ok(parse(&request))
}

/// What a request asks for (RFC 9112, "Request Line").
fn parse(request: &[u8]) -> Asked {
    let line = request.split(|byte| *byte == b'\r').next();
    let Some(line) = line.and_then(|line| std::str::from_utf8(line).ok()) else {
        return Asked::Nonsense;
    };
    let mut words = line.split(' ');
    match (words.next(), words.next(), words.next(), words.next()) {
        (Some(method), Some(target), Some(version), None) if version.starts_with("HTTP/1.") => {
            let path = target.split('?').next();
            match method {
                "GET" if path == Some("/metrics") => Asked::Metrics,
                "GET" => Asked::Other,
                _ => Asked::NoGet,
            }
        }
        _ => Asked::Nonsense,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_get_of_the_metrics_is_answered() {
        let cases: [(&[u8], Asked); 8] = [
            (b"GET /metrics HTTP/1.1\r\nHost: a\r\n\r\n", Asked::Metrics),
            (b"GET /metrics?name[]=x HTTP/1.0\r\n\r\n", Asked::Metrics),
            (b"GET / HTTP/1.1\r\n\r\n", Asked::Other),
            (b"POST /metrics HTTP/1.1\r\n\r\n", Asked::NoGet),
            (b"GET /metrics\r\n\r\n", Asked::Nonsense),
            (b"GET  /metrics HTTP/1.1\r\n\r\n", Asked::Nonsense),
            (b"GET /metrics HTTP/2\r\n\r\n", Asked::Nonsense),
            (b"\xff\xfe\r\n\r\n", Asked::Nonsense),
        ];
        for (request, expected) in cases {
            let told = String::from_utf8_lossy(request);
            assert_eq!(parse(request), expected, "{told}");
        }
    }
}
