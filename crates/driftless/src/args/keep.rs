//! Which properties of entries are kept.

use clap::{ArgAction, Args};

#[derive(Debug, Args)]
#[command(next_help_heading = "Keeping (everything but access times is kept by default)")]
pub struct KeepArgs {
    /// Keep access times, too
    #[arg(long)]
    pub atimes: bool,
    /// Do not keep permission bits: a new entry gets those of its source less the umask
    #[arg(long = "no-mode", action = ArgAction::SetFalse)]
    pub mode: bool,
    /// Do not keep owners
    #[arg(long = "no-owner", action = ArgAction::SetFalse)]
    pub owner: bool,
    /// Do not keep groups
    #[arg(long = "no-group", action = ArgAction::SetFalse)]
    pub group: bool,
    /// Do not keep modification times; content is compared then
    #[arg(long = "no-times", action = ArgAction::SetFalse)]
    pub times: bool,
    /// Count modification times as equal that are at most SECONDS (up to a day) apart; without it,
    /// those that differ by what the replica cannot keep
    #[arg(long, value_name = "SECONDS", default_value_t = 0, hide_default_value = true, value_parser = crate::units::window_seconds)]
    pub modify_window: u32,
    /// Take it for a problem if an owner cannot be given; without it, owners that an ordinary user
    /// cannot give are only counted
    #[arg(long = "owner", conflicts_with = "owner")]
    pub demand_owner: bool,
    /// Take it for a problem if a group cannot be given; without it, groups that an ordinary user
    /// cannot give are only counted
    #[arg(long = "group", conflicts_with = "group")]
    pub demand_group: bool,
    /// Copy hard links as separate files
    #[arg(long = "no-hard-links", action = ArgAction::SetFalse)]
    pub hard_links: bool,
    /// Write zeros where the source has holes
    #[arg(long = "no-holes", action = ArgAction::SetFalse)]
    pub holes: bool,
    /// Leave out symbolic links
    #[arg(long = "no-symlinks", action = ArgAction::SetFalse)]
    pub symlinks: bool,
    /// Leave out fifos and sockets
    #[arg(long = "no-specials", action = ArgAction::SetFalse)]
    pub specials: bool,
    /// Leave out devices
    #[arg(long = "no-devices", action = ArgAction::SetFalse)]
    pub devices: bool,
    /// Do not keep extended attributes (ACLs are kept all the same)
    #[arg(long = "no-xattrs", action = ArgAction::SetFalse)]
    pub xattrs: bool,
    /// Do not keep POSIX ACLs: the mode gives nobody more than the ACL does
    #[arg(long = "no-acls", action = ArgAction::SetFalse)]
    pub acls: bool,
}
