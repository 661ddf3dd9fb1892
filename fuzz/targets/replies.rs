//! What a client hears: the greeting, then replies, with whole files. The input is taken as a line
//! and as one head.
#![no_main]

use driftless_fuzz::{begin, bounded, meta, said_again};
use driftless_model::{Act, Entry, EntryName, Kind, RelPath, Side, Xattrs, check_name};
use driftless_remote::wire::{
    Frame, Hello, Identity, Limits, Listing, Located, May, Name, Own, PROTOCOL, Reply, Told,
    WireFault, WireRemoved, whole,
};
use driftless_remote::{Heard, greeted};
use driftless_tree::{MarkText, Removed, Rights, STUCK_MAX};
use libfuzzer_sys::fuzz_target;

/// What the kernel returns as error numbers ends here (`MAX_ERRNO` of linux/err.h).
const ERRNO_MAX: i32 = 4095;

fuzz_target!(init: begin(seeds()), |bytes: &[u8]| {
    bounded(bytes.len(), || {
        if let Ok(hello) = greeted(&mut &bytes[..], &Heard::default()) {
            said_again(&hello);
        }
        let mut line = bytes;
        while let Ok(Some(frame)) = Frame::read(&mut line) {
            heard(frame);
        }
        if bytes.len() >= 8 {
            heard(Frame { head: bytes.to_vec(), data: Vec::new() });
        }
    });
});

fn heard(frame: Frame) {
    let Ok(reply) = frame.message::<Reply>() else {
        return;
    };
    said_again(&reply);
    match reply {
        Reply::Fault(fault) | Reply::Lost(fault) => show(&fault),
        Reply::Faults(faults) => faults.iter().for_each(show),
        Reply::Entered(_, Some(listing)) | Reply::Listing(listing) => check_listing(&listing),
        Reply::Located(Located::Entry(_, name, _) | Located::Missing(_, name)) => check(&name),
        Reply::Located(Located::Refused(_, fault)) => show(&fault),
        Reply::Whole(Some((entry, extents))) => check_whole(entry, extents, frame.data),
        Reply::Removed(removed) => check_removed(removed),
        _ => {}
    }
}

fn show(fault: &WireFault) {
    let fault = fault.on(Side::Source);
    assert!((1..=ERRNO_MAX).contains(&fault.errno));
}

fn check(name: &Name) {
    assert!(check_name(name.0.to_bytes()).is_ok());
}

fn check_listing(listing: &Listing) {
    listing.told.iter().for_each(|told| check(&told.name));
    listing.fault.iter().for_each(show);
}

fn check_removed(removed: WireRemoved) {
    let removed = removed.on(Side::Replica);
    assert!(
        removed.stuck.len() <= STUCK_MAX
            && removed
                .stuck
                .iter()
                .all(|(path, _)| path.names().all(|name| check_name(name).is_ok()))
    );
}

fn check_whole(entry: Entry, extents: Vec<std::ops::Range<u64>>, data: Vec<u8>) {
    let size = data.len() as u64;
    let Some(whole) = whole(entry, extents, data) else {
        return;
    };
    assert!(
        whole.meta.kind == Kind::File && whole.meta.size == size && whole.data.len() as u64 == size
    );
    let mut at = 0;
    for extent in whole.extents {
        assert!(extent.start >= at && extent.start < extent.end && extent.end <= size);
        at = extent.end;
    }
}

fn replies() -> Vec<Reply> {
    let xattrs = Xattrs::from(vec![(b"user.a"[..].into(), b"b"[..].into())]);
    let (fault, name) = (|| WireFault::new(Act::Open, 13), || Name(c"name".into()));
    let own = || Own {
        meta: meta(Kind::Dir, 0),
        is_mount_root: Some(false),
        xattrs: Some(xattrs.clone()),
        is_marked: true,
        is_unfinished: true,
    };
    let entry = |kind| Entry {
        meta: meta(kind, 6),
        xattrs: xattrs.clone(),
    };
    let told = |kind, target| Told {
        name: name(),
        kind: Some(kind),
        entry: Some(entry(kind)),
        target,
    };
    let listing = || Listing {
        told: vec![
            told(Kind::File, None),
            told(Kind::Symlink, Some(c"to".into())),
        ],
        more: true,
        fault: Some(fault()),
    };
    vec![
        Reply::Done,
        Reply::Fault(fault()),
        Reply::Faults(vec![fault(), fault()]),
        Reply::Meta(meta(Kind::File, 6)),
        Reply::Xattrs(xattrs.clone()),
        Reply::Digests(vec![[7; 32]; 2]),
        Reply::Range(Some(0..6)),
        Reply::Count(3),
        Reply::Removed(
            Removed {
                entries: 3,
                met: 4,
                spares: true,
                stuck: vec![(
                    RelPath::from_names([&b"a"[..], b"b"]),
                    fault().on(Side::Replica),
                )],
            }
            .into(),
        ),
        Reply::Located(Located::Dir(own())),
        Reply::Located(Located::Entry(own(), name(), meta(Kind::File, 6))),
        Reply::Located(Located::Missing(own(), name())),
        Reply::Located(Located::Refused(b"/a".to_vec(), fault())),
        Reply::Entered(own(), Some(listing())),
        Reply::Listing(listing()),
        Reply::Whole(None),
        Reply::Marks(vec![MarkText {
            above: b"/srv".to_vec(),
            text: b"driftless mark 1".to_vec(),
        }]),
        Reply::Lineage(vec![
            driftless_tree::Ancestor {
                id: (1, 2),
                name: EntryName::try_from(b"a".to_vec()).ok(),
            },
            driftless_tree::Ancestor {
                id: (1, 3),
                name: None,
            },
        ]),
        Reply::Birthmark(Some(7)),
        Reply::Note(Some(b"note".to_vec())),
        Reply::Gathers {
            place: b"0001f".to_vec(),
            secret: 7,
        },
    ]
}

fn seeds() -> Vec<Vec<u8>> {
    let file = Entry {
        meta: meta(Kind::File, 6),
        xattrs: Xattrs::default(),
    };
    let mut frames: Vec<Frame> = replies()
        .iter()
        .map(|reply| Frame::new(9, reply, Vec::new()))
        .collect();
    frames.push(Frame::new(
        9,
        &Reply::Whole(Some((file, vec![0..2, 4..6]))),
        b"ab\0\0ef".to_vec(),
    ));
    let line = |frames: &[Frame]| {
        let mut bytes = Vec::new();
        frames
            .iter()
            .for_each(|frame| frame.write(&mut bytes).expect("memory"));
        bytes
    };
    let mut greeting = format!("Welcome\ndriftless-agent {PROTOCOL} 0.1.0\n").into_bytes();
    greeting.extend(line(&[Frame::new(
        0,
        &Hello {
            rights: Rights {
                uid: 0,
                gid: 0,
                groups: vec![4],
                any_owner: true,
                capabilities: true,
                trusted: true,
            },
            identity: Identity {
                machine: b"boot".to_vec(),
                host: b"host".to_vec(),
            },
            joined: 0,
            limits: Limits {
                only: vec![b"/backup".to_vec()],
                may: May::Keep,
            },
            compresses: true,
        },
        Vec::new(),
    )]));
    let each = frames.iter().map(|frame| line(std::slice::from_ref(frame)));
    let heads = frames.iter().map(|frame| frame.head.clone());
    each.chain(heads)
        .chain([line(&frames), greeting, b"driftless-agent 99 x\n".to_vec()])
        .collect()
}
