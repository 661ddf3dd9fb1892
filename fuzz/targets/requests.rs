//! What an agent hears: the roots that a client names, then requests, with parcels. The input is
//! taken as a line and as one head.
#![no_main]

use driftless_fuzz::{begin, bounded, meta, said_again};
use driftless_model::{Entry, Filter, Keep, Kind, Level, RelPath, Rule, Side, Xattrs, check_name};
use driftless_remote::Root;
use driftless_remote::wire::{
    DATA_BYTES_MAX, Frame, HEAD_BYTES_MAX, Name, NewEntryHead, Opening, ROOTS_MAX, Request, Survey,
    WireSpared,
};
use driftless_tree::{Attributes, Known, NewEntry, Reach, Spared, Whole};
use libfuzzer_sys::fuzz_target;

fuzz_target!(init: begin(seeds()), |bytes: &[u8]| {
    bounded(bytes.len(), || {
        let mut line = bytes;
        if let Ok(Some(opening)) = Opening::read(&mut line) {
            assert!(opening.roots.len() <= ROOTS_MAX);
            said_again(&opening);
        }
        let mut line = bytes;
        while let Ok(Some(frame)) = Frame::read(&mut line) {
            framed_again(&frame);
            heard(frame);
        }
        if bytes.len() >= 8 {
            heard(Frame { head: bytes.to_vec(), data: Vec::new() });
        }
    });
});

fn framed_again(frame: &Frame) {
    assert!(frame.head.len() <= HEAD_BYTES_MAX && frame.data.len() <= DATA_BYTES_MAX);
    let mut bytes = Vec::new();
    frame.write(&mut bytes).expect("memory");
    let again = Frame::read(&mut &bytes[..])
        .expect("a frame")
        .expect("a whole one");
    assert_eq!(
        (again.number(), &again.head, &again.data),
        (frame.number(), &frame.head, &frame.data)
    );
}

fn heard(frame: Frame) {
    let Ok(request) = frame.message::<Request>() else {
        return;
    };
    said_again(&request);
    let _a_number = request.reply_memory();
    if let Request::Make { new, .. } = request {
        packed_again(*new, frame.data);
    }
}

fn packed_again(head: NewEntryHead, data: Vec<u8>) {
    let size = data.len();
    let Some(new) = head.with(data) else { return };
    assert!(check_name(new.name.to_bytes()).is_ok());
    assert_eq!(new.content.is_some(), new.entry.meta.kind == Kind::File);
    assert_eq!(new.target.is_some(), new.entry.meta.kind == Kind::Symlink);
    if let Some(Whole {
        meta,
        extents,
        data,
        ..
    }) = &new.content
    {
        assert!(meta.size == size as u64 && data.len() == size);
        assert!(
            extents
                .iter()
                .all(|extent| extent.start < extent.end && extent.end <= meta.size)
        );
    }
    let shown = format!("{new:?}");
    let (head, data) = NewEntryHead::of(new);
    assert_eq!(
        format!(
            "{:?}",
            head.with(data).expect("what was packed is unpacked")
        ),
        shown
    );
}

fn name() -> Name {
    Name(c"name".into())
}

fn parcels() -> [NewEntry; 2] {
    let keep = Keep::default();
    let file = Entry {
        meta: meta(Kind::File, 7),
        xattrs: vec![(b"user.a"[..].into(), b"b"[..].into())].into(),
    };
    let content = Whole {
        meta: file.meta,
        xattrs: file.xattrs.clone(),
        extents: vec![0..2, 3..7],
        data: b"content".to_vec(),
    };
    let link = Entry {
        meta: meta(Kind::Symlink, 6),
        xattrs: Xattrs::default(),
    };
    let (private, sync, verify) = (true, false, Some(Level::Content));
    [
        NewEntry {
            stood: None,
            name: c"file".into(),
            entry: file,
            content: Some(content),
            target: None,
            keep,
            private,
            room: 0,
            sync,
            verify,
        },
        NewEntry {
            stood: Some(0o640),
            name: c"link".into(),
            entry: link,
            content: None,
            target: Some(c"target".into()),
            keep,
            private,
            room: 7,
            sync,
            verify: None,
        },
    ]
}

fn rules() -> Option<WireSpared> {
    let rules = ["*.keep", "/a/b/"].map(|pattern| Rule::new(false, pattern).expect("a rule"));
    let filter = Filter {
        rules: rules.into(),
        ..Filter::default()
    };
    WireSpared::of(Spared {
        rules: Some((&filter, &RelPath::from_names([&b"a"[..]]))),
        is_wary: true,
        is_over: None,
        kept: Some((1, 2)),
    })
}

fn requests() -> Vec<Request> {
    let (keep, survey) = (
        Keep::default(),
        Survey {
            keep: Keep::default(),
            files: true,
            entries_max: 4096,
        },
    );
    let xattrs = Xattrs::from(vec![(b"user.a"[..].into(), b"b"[..].into())]);
    let attributes = Attributes::of(&meta(Kind::File, 0), xattrs, &keep);
    vec![
        Request::Locate { root: 0, at: 1 },
        Request::Enter {
            dir: 1,
            name: name(),
            at: 2,
            survey: Some(survey),
        },
        Request::List { dir: 2, survey },
        Request::EntryXattrs {
            dir: 2,
            name: name(),
            keep,
            long: false,
        },
        Request::Create {
            dir: 2,
            name: name(),
            mode: 0o600,
            at: 3,
        },
        Request::Read {
            file: 3,
            offset: 0,
            len: 1 << 20,
        },
        Request::Digests {
            file: 3,
            range: 0..1 << 20,
            piece: 65536,
        },
        Request::SetOwn {
            at: 3,
            known: Known::of(&meta(Kind::File, 0)),
            attributes,
        },
        Request::SaveProgress {
            file: 3,
            note: Some(b"driftless 1".to_vec()),
        },
        Request::Symlink {
            dir: 2,
            name: name(),
            target: c"to".into(),
        },
        Request::Node {
            dir: 2,
            name: name(),
            kind: Kind::Fifo,
            rdev: 0,
        },
        Request::Link {
            dir: 2,
            name: name(),
            from: 1,
            from_name: name(),
            id: (1, 2),
        },
        Request::Rename {
            dir: 2,
            from: name(),
            to: name(),
        },
        Request::Displace {
            dir: 2,
            from: name(),
            to: name(),
            below_max: 3,
        },
        Request::RemoveTree {
            dir: 2,
            name: name(),
            spared: rules(),
        },
        Request::CountTree {
            dir: 2,
            name: name(),
            max: 3,
            spared: None,
            is_wary: true,
        },
        Request::Lock {
            dir: 2,
            name: Some(name()),
            reach: Reach::Everywhere,
            at: 4,
        },
        Request::Marks {
            dir: 2,
            above: true,
        },
        Request::SetMark {
            dir: 2,
            text: b"driftless mark 1".to_vec(),
            durable: true,
        },
        Request::SetUnfinished { dir: 2, is: true },
        Request::Fetch {
            dir: 2,
            name: name(),
            keep,
        },
        Request::Gather { secret: 7 },
        Request::Forget { at: 3 },
    ]
}

fn seeds() -> Vec<Vec<u8>> {
    let opening = Opening {
        roots: vec![
            Root {
                path: b"/a/b".to_vec(),
                side: Side::Source,
            },
            Root {
                path: b"c".to_vec(),
                side: Side::Replica,
            },
        ],
    };
    let mut frames: Vec<Frame> = requests()
        .iter()
        .map(|request| Frame::new(9, request, Vec::new()))
        .collect();
    frames.extend(parcels().map(NewEntryHead::of).map(|(new, data)| {
        Frame::new(
            9,
            &Request::Make {
                dir: 1,
                new: Box::new(new),
            },
            data,
        )
    }));
    frames.push(Frame::new(0, &opening, Vec::new()));
    let line = |frames: &[Frame]| {
        let mut bytes = Vec::new();
        frames
            .iter()
            .for_each(|frame| frame.write(&mut bytes).expect("memory"));
        bytes
    };
    let each = frames.iter().map(|frame| line(std::slice::from_ref(frame)));
    let heads = frames.iter().map(|frame| frame.head.clone());
    each.chain(heads).chain([line(&frames)]).collect()
}
