//! Messages as they come from a broker: the properties of AMQP say which version the body has.

use crate::message::Message;
use crate::refused::Refused;
use crate::v02::Headers;

/// The content type of version 03.
pub const CONTENT_TYPE: &str = "application/json";
/// The content encoding of version 03.
pub const CONTENT_ENCODING: &str = "utf-8";
/// The content type of version 02.
pub const CONTENT_TYPE_V02: &str = "text/plain";

/// Reads a message of either version. One without a known content type is of version 03 if it looks
/// like an object.
///
/// # Errors
/// It cannot be read as what it is.
pub fn parse(
    body: &[u8],
    content_type: Option<&str>,
    headers: &Headers,
) -> Result<Message, Refused> {
    let first = body.iter().find(|byte| !byte.is_ascii_whitespace());
    let is_v02 = match content_type.map(without_parameters) {
        Some(CONTENT_TYPE) => false,
        Some(CONTENT_TYPE_V02) => true,
        _ => first != Some(&b'{'),
    };
    if is_v02 {
        Message::parse_v02(body, headers)
    } else {
        Message::parse(body)
    }
}

/// `text/plain; charset=utf-8` is `text/plain`.
fn without_parameters(content_type: &str) -> &str {
    content_type.split(';').next().unwrap_or_default().trim()
}
