//! Writing to files of a tree that is not trusted: never through a link.
//!
//! A hostile tree has links to anywhere, tests run as root, and a path that was a file a moment ago
//! may be a link now. Whatever in the tests picks a path of such a tree and writes to it goes
//! through here.

use rustix::fs::OFlags;
use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::Path;

/// Opens a file that is there for reading and writing; a link is an error.
pub fn open_to_write(path: &Path) -> io::Result<File> {
    options().open(path)
}

/// Gives a file a content, and makes it if it is not there; a link is an error.
pub fn write(path: &Path, content: &[u8]) -> io::Result<()> {
    options()
        .create(true)
        .truncate(true)
        .open(path)?
        .write_all(content)
}

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options
        .read(true)
        .write(true)
        .custom_flags(OFlags::NOFOLLOW.bits().cast_signed());
    options
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs;
    use std::os::unix::fs::symlink;

    #[test]
    fn nothing_is_written_through_a_link() {
        let folder = crate::scratch::scratch_folder();
        let [file, link, dangling, new] =
            ["file", "link", "dangling", "new"].map(|name| folder.path().join(name));
        fs::write(&file, "precious").expect("write");
        symlink(&file, &link).expect("link");
        symlink(&new, &dangling).expect("link");
        for link in [&link, &dangling] {
            assert!(write(link, b"random").is_err() && open_to_write(link).is_err());
        }
        assert_eq!(fs::read(&file).expect("read"), b"precious");
        assert!(!new.exists());
        write(&file, b"new").expect("a file");
        assert_eq!(fs::read(&file).expect("read"), b"new");
    }
}
