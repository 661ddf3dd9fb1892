//! Options for the properties of entries that are kept.

use clap::{ArgAction, Args};

#[derive(Debug, Args)]
#[command(next_help_heading = "Keeping (everything but access times is kept by default)")]
pub struct KeepArgs {
    /// Keep access times as well
    #[arg(long)]
    pub atimes: bool,
    /// Do not keep permission bits
    ///
    /// A new entry gets the bits of its source less the umask.
    #[arg(long = "no-mode", action = ArgAction::SetFalse)]
    pub mode: bool,
    /// Do not keep owners
    #[arg(long = "no-owner", action = ArgAction::SetFalse)]
    pub owner: bool,
    /// Do not keep groups
    #[arg(long = "no-group", action = ArgAction::SetFalse)]
    pub group: bool,
    /// Do not keep modification times; compare content instead
    #[arg(long = "no-times", action = ArgAction::SetFalse)]
    pub times: bool,
    /// Accept modification times that differ by at most SECONDS
    ///
    /// The maximum is a day. Without this option, times are compared to the precision of the
    /// replica.
    #[arg(long, value_name = "SECONDS", default_value_t = 0, hide_default_value = true, value_parser = crate::units::window_seconds)]
    pub modify_window: u32,
    /// Count an owner that cannot be set as a problem
    ///
    /// Without this option, owners that an ordinary user cannot set are only counted.
    #[arg(long = "owner", conflicts_with = "owner")]
    pub demand_owner: bool,
    /// Count a group that cannot be set as a problem
    ///
    /// Without this option, groups that an ordinary user cannot set are only counted.
    #[arg(long = "group", conflicts_with = "group")]
    pub demand_group: bool,
    /// Copy hard links as separate files
    #[arg(long = "no-hard-links", action = ArgAction::SetFalse)]
    pub hard_links: bool,
    /// Write zeros where the source has holes
    #[arg(long = "no-holes", action = ArgAction::SetFalse)]
    pub holes: bool,
    /// Exclude symbolic links
    #[arg(long = "no-symlinks", action = ArgAction::SetFalse)]
    pub symlinks: bool,
    /// Exclude fifos and sockets
    #[arg(long = "no-specials", action = ArgAction::SetFalse)]
    pub specials: bool,
    /// Exclude devices
    #[arg(long = "no-devices", action = ArgAction::SetFalse)]
    pub devices: bool,
    /// Do not keep extended attributes; ACLs are kept all the same
    #[arg(long = "no-xattrs", action = ArgAction::SetFalse)]
    pub xattrs: bool,
    /// Do not keep POSIX ACLs
    ///
    /// The mode then gives no user more rights than the ACL does.
    #[arg(long = "no-acls", action = ArgAction::SetFalse)]
    pub acls: bool,
}
