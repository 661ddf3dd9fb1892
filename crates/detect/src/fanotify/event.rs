//! What the kernel writes into the queue of a fanotify group (fanotify(7), "Reading fanotify
//! events"; include/uapi/linux/fanotify.h): one record after the other, each with records of its
//! own about the directories and names it concerns.

/// `struct fanotify_event_metadata`: length u32, version u8, u8, length of this part u16, mask
/// u64, descriptor i32, process i32.
const METADATA_BYTES: usize = 24;
/// `FANOTIFY_METADATA_VERSION`.
const VERSION: u8 = 3;
/// `struct fanotify_event_info_header`: kind u8, u8, length u16.
const HEADER_BYTES: usize = 4;
/// `struct fanotify_event_info_fid` before the handle's own bytes: header, file system 2 × i32,
/// bytes of the handle u32, kind of the handle i32.
const FID_BYTES: usize = HEADER_BYTES + 16;

/// A directory, or something else that has a handle.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Handle<'a> {
    /// The file system (statfs(2), `f_fsid`).
    pub file_system: [i32; 2],
    /// `handle_type`.
    pub kind: i32,
    /// `f_handle`.
    pub bytes: &'a [u8],
}

/// A name in a directory.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Place<'a> {
    /// The directory.
    pub dir: Handle<'a>,
    /// The name in it; `.` is the directory itself.
    pub name: &'a [u8],
}

/// One event.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Event<'a> {
    /// What happened: `FAN_*`.
    pub mask: u64,
    /// The process that did it; 0 if it is not told.
    pub process: i32,
    /// Where.
    pub place: Option<Place<'a>>,
    /// What it happened to, for a reader who gets no name.
    pub object: Option<Handle<'a>>,
    /// Of a rename: where it stood before.
    pub old: Option<Place<'a>>,
    /// Of a rename: where it stands then.
    pub new: Option<Place<'a>>,
}

/// The kernel wrote what this program does not understand.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error(
    "fanotify: cannot read the events of this kernel: unknown format at byte {0}; detect = [\"walk\"] works"
)]
pub struct Unknown(pub usize);

/// Cuts what was read into events, in their order.
///
/// # Errors
/// The form is not that of the version known here, or a record is longer than what was read.
pub fn parse(read: &[u8]) -> Result<Vec<Event<'_>>, Unknown> {
    let (mut events, mut at) = (Vec::new(), 0);
    while at < read.len() {
        let (event, length) = one(&read[at..]).ok_or(Unknown(at))?;
        events.push(event);
        at += length;
    }
    Ok(events)
}

fn one(rest: &[u8]) -> Option<(Event<'_>, usize)> {
    let length = number(rest, 0)? as usize;
    let fixed = usize::from(u16::from_ne_bytes(rest.get(6..8)?.try_into().ok()?));
    let is_known = *rest.get(4)? == VERSION && fixed >= METADATA_BYTES && length >= fixed;
    if !is_known {
        return None;
    }
    let mask = u64::from_ne_bytes(rest.get(8..16)?.try_into().ok()?);
    let process = i32::from_ne_bytes(rest.get(20..24)?.try_into().ok()?);
    let mut event = Event {
        mask,
        process,
        ..Event::default()
    };
    let mut records = rest.get(fixed..length)?;
    while !records.is_empty() {
        let bytes = usize::from(u16::from_ne_bytes(records.get(2..4)?.try_into().ok()?));
        let record = records.get(..bytes).filter(|_| bytes >= HEADER_BYTES)?;
        add(&mut event, record)?;
        records = &records[bytes..];
    }
    Some((event, length))
}

/// Adds what one record says; those of kinds that are not needed are passed over.
fn add<'a>(event: &mut Event<'a>, record: &'a [u8]) -> Option<()> {
    match record[0] {
        libc::FAN_EVENT_INFO_TYPE_FID => event.object = Some(handle(record)?.0),
        // Of an event on a directory itself, without a name.
        libc::FAN_EVENT_INFO_TYPE_DFID => {
            let (dir, _) = handle(record)?;
            event.place = Some(Place { dir, name: b"." });
        }
        libc::FAN_EVENT_INFO_TYPE_DFID_NAME => event.place = Some(place(record)?),
        libc::FAN_EVENT_INFO_TYPE_OLD_DFID_NAME => event.old = Some(place(record)?),
        libc::FAN_EVENT_INFO_TYPE_NEW_DFID_NAME => event.new = Some(place(record)?),
        _ => {}
    }
    Some(())
}

fn place(record: &[u8]) -> Option<Place<'_>> {
    let (dir, rest) = handle(record)?;
    let end = rest.iter().position(|byte| *byte == 0)?;
    Some(Place {
        dir,
        name: &rest[..end],
    })
}

/// The handle in a record, and what follows it.
fn handle(record: &[u8]) -> Option<(Handle<'_>, &[u8])> {
    let bytes = number(record, HEADER_BYTES + 8)? as usize;
    let found = Handle {
        file_system: [
            number(record, HEADER_BYTES)? as i32,
            number(record, HEADER_BYTES + 4)? as i32,
        ],
        kind: number(record, HEADER_BYTES + 12)? as i32,
        bytes: record.get(FID_BYTES..FID_BYTES.checked_add(bytes)?)?,
    };
    Some((found, &record[FID_BYTES + bytes..]))
}

fn number(from: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(from.get(at..at + 4)?.try_into().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn record(kind: u8, handle: &[u8], name: &[u8]) -> Vec<u8> {
        let mut body = [7i32.to_ne_bytes(), 8i32.to_ne_bytes()].concat();
        body.extend((handle.len() as u32).to_ne_bytes());
        body.extend(1i32.to_ne_bytes());
        body.extend([handle, name].concat());
        body.resize(body.len().next_multiple_of(4), 0);
        let length = (HEADER_BYTES + body.len()) as u16;
        [vec![kind, 0], length.to_ne_bytes().to_vec(), body].concat()
    }

    fn event(mask: u64, records: &[Vec<u8>]) -> Vec<u8> {
        let records = records.concat();
        let length = (METADATA_BYTES + records.len()) as u32;
        let mut all = length.to_ne_bytes().to_vec();
        all.extend([VERSION, 0]);
        all.extend((METADATA_BYTES as u16).to_ne_bytes());
        all.extend(mask.to_ne_bytes());
        all.extend([(-1i32).to_ne_bytes(), 1i32.to_ne_bytes()].concat());
        [all, records].concat()
    }

    fn dir(bytes: &[u8]) -> Handle<'_> {
        Handle {
            file_system: [7, 8],
            kind: 1,
            bytes,
        }
    }

    #[test]
    fn names_and_both_ends_of_a_rename_are_found() {
        let read = [
            event(2, &[record(2, b"12345678", b"a\nb\0")]),
            event(
                libc::FAN_RENAME,
                &[
                    record(10, b"old", b"x\0"),
                    record(12, b"newer", b"y\0"),
                    record(1, b"it", b""),
                    record(99, b"", b"what is to come"),
                ],
            ),
            event(libc::FAN_Q_OVERFLOW, &[]),
        ]
        .concat();
        let events = parse(&read).unwrap();
        let at = |bytes, name| {
            Some(Place {
                dir: dir(bytes),
                name,
            })
        };
        assert_eq!(events.len(), 3);
        assert_eq!(events[0].place, at(b"12345678", b"a\nb"));
        assert_eq!(
            (events[1].old, events[1].new, events[1].object),
            (at(b"old", b"x"), at(b"newer", b"y"), Some(dir(b"it")))
        );
        assert_eq!(events[2].mask, libc::FAN_Q_OVERFLOW);
    }

    #[test]
    fn what_is_cut_off_or_of_another_version_is_an_error_and_nothing_else() {
        let whole = event(2, &[record(2, b"12345678", b"name\0")]);
        for length in 1..whole.len() {
            assert_eq!(parse(&whole[..length]), Err(Unknown(0)), "{length} bytes");
        }
        for at in 0..whole.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut other = whole.clone();
                other[at] = value;
                let _whatever_it_says_nothing_breaks = parse(&other);
            }
        }
        let mut newer = whole.clone();
        newer[4] = VERSION + 1;
        assert_eq!(parse(&newer), Err(Unknown(0)));
    }
}
