//! Packages: the tarball, the deb and the rpm that `packaging/build` makes. The deb is installed in a
//! folder that serves as a root, runs there, and is removed.
#![allow(clippy::disallowed_methods)]

mod common;

use common::pages::{Shell, project};
use std::fs;

/// Files of each package, below `/usr`.
const FILES: [&str; 15] = [
    "bin/driftless",
    "lib/driftless/libdriftless_shim.so",
    "lib/systemd/system/driftless-ftps.service",
    "lib/systemd/system/driftless-gateway.service",
    "lib/systemd/system/driftless-mirror@.service",
    "lib/systemd/system/driftless-node@.service",
    "lib/systemd/system/driftless-watch@.service",
    "share/man/man1/driftless-cast.1.gz",
    "share/man/man1/driftless-doctor.1.gz",
    "share/man/man1/driftless-mirror-status.1.gz",
    "share/man/man1/driftless-node-status.1.gz",
    "share/bash-completion/completions/driftless",
    "share/zsh/site-functions/_driftless",
    "share/fish/vendor_completions.d/driftless.fish",
    "share/doc/driftless/LICENSE-MIT",
];

/// A script for `dpkg` with the folder `deb` as the root.
const DPKG: &str = "PATH=$PATH:/usr/sbin:/sbin dpkg --root=$PWD/deb --log=/dev/null";

/// Returns what a script prints, which must succeed.
fn printed(stage: &Shell, script: &str) -> String {
    let output = stage.bash(&format!("set -e\n{script}"));
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "{script}: {text}");
    text
}

fn check_files(stage: &Shell, usr: &str) {
    for path in FILES {
        let path = stage.folder.path().join(usr).join(path);
        assert!(path.is_file(), "{path:?}");
    }
}

#[test]
fn packages_install_run_and_leave_nothing() {
    let stage = Shell::new();
    let folder = stage.folder.path();
    stage.put_built();
    let build = format!(
        "PACKAGE_LEVEL=1 {}/packaging/build built packages
        cd packages; sha256sum --check --quiet SHA256SUMS; rpm --checksig --nosignature *.rpm",
        project().display()
    );
    let text = printed(&stage, &build);
    assert!(text.ends_with("digests OK\n"), "{text}");

    let unpack = "mkdir tar; tar -xzf packages/*.tar.gz --strip-components=1 -C tar";
    let _ = printed(&stage, unpack);
    check_files(&stage, "tar");

    let install =
        "mkdir -p deb/var/lib/dpkg/info deb/var/lib/dpkg/updates; touch deb/var/lib/dpkg/status";
    let _ = printed(
        &stage,
        &format!("{install}\n{DPKG} --install packages/*.deb"),
    );
    check_files(&stage, "deb/usr");
    assert_eq!(printed(&stage, &format!("{DPKG} --verify driftless")), "");
    let run =
        "mkdir data; date >data/now; deb/usr/bin/driftless sync data copy; cmp data/now copy/now";
    let text = printed(&stage, run);
    assert!(text.starts_with("2 entries: 0 same, 2 changed"), "{text}");
    let _ = printed(&stage, &format!("{DPKG} --purge driftless"));
    assert!(!folder.join("deb/usr").exists(), "it is removed");

    let unpack = "mkdir rpm; cd rpm; rpm2cpio ../packages/*.rpm | cpio -idm --quiet";
    let _ = printed(&stage, unpack);
    check_files(&stage, "rpm/usr");
    let text = printed(&stage, "rpm/usr/bin/driftless --version");
    assert!(text.starts_with("driftless 0."), "{text}");
    let unit = folder.join("rpm/usr/lib/systemd/system/driftless-mirror@.service");
    let unit = fs::read_to_string(unit).expect("the unit");
    assert!(unit.contains("\nExecStart=/usr/bin/driftless "), "{unit}");
}
