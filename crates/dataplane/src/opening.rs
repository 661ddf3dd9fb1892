//! The first frames of a connection: the end that has connected says which bundle it belongs to,
//! and the other end answers after it has accepted the key.
//!
//! With TLS 1.3 a connecting end completes the handshake before the other end has seen its key. The
//! answer therefore proves that the peer accepts this end.

use crate::frame::KIND_OPEN;
use crate::{BUNDLE_LINKS_MAX, LinkMessage};

/// Bytes of the identifier of a bundle.
const ID_BYTES: usize = 16;
/// Bytes of an opening: identifier, index, count.
pub(crate) const OPENING_BYTES: usize = ID_BYTES + 2;

/// Place of a connection in its bundle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LinkOpening {
    /// Random identifier of the bundle.
    pub(crate) id: [u8; ID_BYTES],
    /// Place in the bundle, from 0.
    pub(crate) index: u8,
    /// Connections of the bundle. Zero for a connection that stands alone.
    pub(crate) count: u8,
}

impl LinkOpening {
    /// Returns the opening of another connection of the same bundle.
    pub(crate) fn with_index(self, index: u8) -> LinkOpening {
        LinkOpening { index, ..self }
    }

    /// The opening of a connection that stands alone.
    pub(crate) const ALONE: LinkOpening = LinkOpening {
        id: [0; ID_BYTES],
        index: 0,
        count: 0,
    };

    /// Whether the connection belongs to no bundle.
    pub(crate) fn is_alone(self) -> bool {
        self.count == 0
    }

    pub(crate) fn to_bytes(self) -> [u8; OPENING_BYTES] {
        let mut bytes = [0; OPENING_BYTES];
        let values = self.id.into_iter().chain([self.index, self.count]);
        bytes
            .iter_mut()
            .zip(values)
            .for_each(|(byte, value)| *byte = value);
        bytes
    }

    /// Reads an opening. Returns `None` if the message is another one or makes no sense.
    pub(crate) fn read(message: &LinkMessage) -> Option<Self> {
        let (id, rest) = message.bytes.split_first_chunk::<ID_BYTES>()?;
        let &[index, count] = rest else {
            return None;
        };
        let opening = LinkOpening {
            id: *id,
            index,
            count,
        };
        let has_place = index < count && count <= BUNDLE_LINKS_MAX;
        let is_valid = has_place || opening == LinkOpening::ALONE;
        (message.kind == KIND_OPEN && is_valid).then_some(opening)
    }
}

#[cfg(test)]
mod tests {
    use super::{LinkOpening, OPENING_BYTES};
    use crate::LinkMessage;
    use crate::frame::{KIND_OPEN, KIND_WELCOME};

    fn read(kind: u8, bytes: &[u8]) -> Option<LinkOpening> {
        let bytes = bytes.to_vec();
        LinkOpening::read(&LinkMessage { kind, bytes })
    }

    #[test]
    fn opening_is_read_as_written() {
        let (id, index, count) = ([7; 16], 2, 3);
        let opening = LinkOpening { id, index, count };
        for opening in [opening, LinkOpening::ALONE] {
            assert_eq!(read(KIND_OPEN, &opening.to_bytes()), Some(opening));
        }
    }

    #[test]
    fn senseless_opening_is_refused() {
        let mut bytes = LinkOpening::ALONE.to_bytes();
        assert_eq!(read(KIND_WELCOME, &bytes), None);
        assert_eq!(read(KIND_OPEN, &[1; OPENING_BYTES - 1]), None);
        assert_eq!(read(KIND_OPEN, &[1; OPENING_BYTES + 1]), None);
        bytes[16] = 1;
        assert_eq!(read(KIND_OPEN, &bytes), None);
        bytes[17] = 200;
        assert_eq!(read(KIND_OPEN, &bytes), None);
    }
}
