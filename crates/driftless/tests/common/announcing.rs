//! Changes a source at random, and announces what stands there.

use driftless_announce::Publisher;
use driftless_model::{RelPath, Stamp};
use driftless_sarracenia::{About, Announced, Became, Standing};
use driftless_testkit::EVENT_MAX;
use std::fs;
use std::os::unix::fs::{MetadataExt, symlink};
use std::path::Path;
use std::time::Duration;

/// The longest that the broker may take for a message.
const LIMIT: Duration = EVENT_MAX;

/// Announces what stands at a path of the source.
pub fn announce(publisher: &Publisher, source: &Path, path: &str) {
    let full = source.join(path);
    let became = match fs::symlink_metadata(&full) {
        Err(_) => Became::Gone {
            was_directory: false,
        },
        Ok(meta) if meta.is_symlink() => Became::Here(Standing::Symlink {
            target: b"target".to_vec(),
        }),
        Ok(meta) if meta.is_dir() => Became::Here(Standing::Directory(about(&meta))),
        Ok(meta) => Became::Here(Standing::File(about(&meta))),
    };
    tell(publisher, path, became);
}

/// Announces what became of a path.
pub fn tell(publisher: &Publisher, path: &str, became: Became) {
    let path = RelPath::parse(path.as_bytes()).expect("a path");
    let sent = publisher.announce(&Announced { path, became }, stamp_now(), LIMIT);
    sent.expect("accepted");
}

fn stamp_now() -> Stamp {
    let since = std::time::UNIX_EPOCH.elapsed().expect("after 1970");
    Stamp {
        sec: since.as_secs().cast_signed(),
        nsec: since.subsec_nanos(),
    }
}

fn about(meta: &fs::Metadata) -> About {
    let stamp = |sec, nsec: i64| Stamp {
        sec,
        nsec: u32::try_from(nsec).expect("below a second"),
    };
    About {
        size: meta.len(),
        mode: meta.mode() & 0o7777,
        mtime: stamp(meta.mtime(), meta.mtime_nsec()),
        atime: stamp(meta.atime(), meta.atime_nsec()),
    }
}

/// Changes a source at random and announces each change.
pub struct Writer<'a> {
    publisher: &'a Publisher,
    source: &'a Path,
    random: fastrand::Rng,
}

impl<'a> Writer<'a> {
    /// One that makes four directories first.
    pub fn new(publisher: &'a Publisher, source: &'a Path, seed: u64) -> Writer<'a> {
        for dir in 0..4 {
            fs::create_dir_all(source.join(format!("d{dir}"))).expect("a directory");
            announce(publisher, source, &format!("d{dir}"));
        }
        let random = fastrand::Rng::with_seed(seed);
        Writer {
            publisher,
            source,
            random,
        }
    }

    /// One of few names, so that the same are changed again and again.
    fn name(&mut self) -> String {
        format!("d{}/f{}", self.random.u8(..4), self.random.u8(..12))
    }

    fn announce(&self, path: &str) {
        announce(self.publisher, self.source, path);
    }

    /// Many, at a pace at which all of a pool are at work meanwhile.
    pub fn steps(&mut self, steps: usize) {
        for _ in 0..steps {
            self.step();
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn step(&mut self) {
        let path = self.name();
        let full = self.source.join(&path);
        match self.random.u8(..20) {
            0..=9 => {
                let is_file = fs::symlink_metadata(&full).is_ok_and(|meta| meta.is_file());
                // In place, under all its names, or anew.
                if !is_file || self.random.bool() {
                    clear(&full);
                }
                let text = vec![self.random.u8(..); self.random.usize(..3000)];
                fs::write(&full, text).expect("a file");
                self.announce(&path);
            }
            10..=12 => {
                clear(&full);
                self.announce(&path);
            }
            13 => {
                clear(&full);
                symlink("target", &full).expect("a link");
                self.announce(&path);
            }
            14..=15 => {
                clear(&full);
                fs::create_dir(&full).expect("a directory");
                fs::write(full.join("below"), &path).expect("a file");
                self.announce(&path);
                self.announce(&format!("{path}/below"));
            }
            16..=18 => self.rename(&path),
            _ => self.link(&path),
        }
    }

    fn rename(&mut self, path: &str) {
        let to = self.name();
        let (full, new) = (self.source.join(path), self.source.join(&to));
        let Ok(meta) = fs::symlink_metadata(&full) else {
            return;
        };
        if path == to {
            return;
        }
        clear(&new);
        fs::rename(&full, &new).expect("renamed");
        let now = match () {
            () if meta.is_dir() => Standing::Directory(about(&meta)),
            () if meta.is_symlink() => Standing::Symlink {
                target: b"target".to_vec(),
            },
            () => Standing::File(about(&meta)),
        };
        let from = RelPath::parse(path.as_bytes()).expect("a path");
        tell(self.publisher, &to, Became::Moved { from, now });
    }

    fn link(&mut self, path: &str) {
        let to = self.name();
        let (full, new) = (self.source.join(path), self.source.join(&to));
        let is_file = fs::symlink_metadata(&full).is_ok_and(|meta| meta.is_file());
        if !is_file || path == to {
            return;
        }
        clear(&new);
        fs::hard_link(&full, &new).expect("a link");
        let about = about(&fs::metadata(&new).expect("a file"));
        let first = RelPath::parse(path.as_bytes()).expect("a path");
        tell(
            self.publisher,
            &to,
            Became::Linked {
                of: first,
                file: about,
            },
        );
    }
}

fn clear(path: &Path) {
    if fs::symlink_metadata(path).is_ok_and(|meta| meta.is_dir()) {
        fs::remove_dir_all(path).expect("removed");
    } else {
        let _it_may_not_be_there = fs::remove_file(path);
    }
}
