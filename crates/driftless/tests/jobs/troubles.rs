//! Commands of a batch system that misbehave on order: scripts before the real ones in the PATH of the
//! gateway.

use crate::cluster::Cluster;
use crate::site::Site;
use std::fs;
use std::path::PathBuf;

/// Does what the file `trouble-NAME` names, and then what the real command does. Notes each call with
/// a trouble.
const WRAPPER: &str = r#"#!/bin/sh
folder=${0%/*}
name=${0##*/}
PATH=${PATH#"$folder:"}
export PATH
trouble=
if [ -e "$folder/trouble-$name" ]; then trouble=$(cat "$folder/trouble-$name"); fi
if [ -n "$trouble" ]; then echo "$trouble" >>"$folder/calls-$name"; fi
case $trouble in
slow) sleep 1 ;;
loud) echo "$name: warning: the clock is slow" >&2 ;;
refused) echo "$name: error: Invalid whim of a test" >&2; exit 1 ;;
garbage) printf 'job 9.99 \000\377 {\n'; exit ;;
killed) kill -KILL $$ ;;
empty) exit ;;
cut) "$name" "$@" | head -c 40; exit ;;
lost) "$name" "$@" >/dev/null; kill -KILL $$ ;;
esac
exec "$name" "$@"
"#;

/// Commands of a gateway that misbehave on order.
pub struct Troubles {
    folder: PathBuf,
}

impl Troubles {
    /// Starts the gateway of a site again, with these commands before the real ones.
    pub fn start<C: Cluster>(site: &mut Site<C>, commands: &[&str]) -> Troubles {
        let folder = site.make_out("troubles");
        let troubles = Troubles { folder };
        for command in commands {
            site.script(&format!("troubles/{command}"), WRAPPER);
        }
        site.kill_gateway();
        site.first_in_path = Some(troubles.folder.clone());
        site.start_gateway();
        troubles
    }

    /// Makes a command misbehave from now on.
    pub fn begin(&self, command: &str, trouble: &str) {
        let _there_may_be_none = fs::remove_file(self.folder.join(format!("calls-{command}")));
        let new = self.folder.join("new");
        fs::write(&new, trouble).expect("a file");
        fs::rename(new, self.folder.join(format!("trouble-{command}"))).expect("in place");
    }

    /// Lets a command work again.
    pub fn end(&self, command: &str) {
        let _it_may_work = fs::remove_file(self.folder.join(format!("trouble-{command}")));
    }

    /// Returns how often the command was called since its trouble began.
    pub fn calls(&self, command: &str) -> usize {
        let calls = fs::read_to_string(self.folder.join(format!("calls-{command}")));
        calls.unwrap_or_default().lines().count()
    }
}
