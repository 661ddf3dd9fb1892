//! What can be tried on an entry of a tree: a closed set, with the words that a person reads.
//!
//! A fault and a problem name one of these, so what another host says was tried is one of ours or
//! is refused when it is decoded: no text of a peer stands in our sentences. With
//! [`cause_of`](crate::cause_of) they are put together to "cannot ACT: CAUSE".

use crate::Side;
use serde::{Deserialize, Serialize};

macro_rules! acts {
    ($($name:ident => $words:literal $joint:ident,)*) => {
        /// What was tried. Over the line it is a number; each is documented by the words that a
        /// person reads.
        #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
        pub enum Act {
            $(#[doc = $words] $name,)*
        }

        impl Act {
            /// All there are.
            pub const ALL: &[Act] = &[$(Act::$name,)*];

            /// An infinitive with its object: `open it`, `set its owner`.
            pub fn words(self) -> &'static str {
                match self { $(Act::$name => $words,)* }
            }

            /// What joins the words to the tree.
            fn joint(self) -> &'static str {
                match self { $(Act::$name => stringify!($joint),)* }
            }
        }
    };
}

acts! {
    // Finding and looking.
    Open => "open it" on,
    OpenDirectory => "open the directory" on,
    ReopenDirectory => "open the directory again" on,
    OpenAbove => "open the directory that shall hold the replica" on,
    BeginAtHome => "begin in the home directory" on,
    Use => "use it as a path" on,
    LookAt => "look at it" on,
    List => "list the directory" on,
    Find => "find it" on,
    FindAbove => "find the directories above it" on,
    TellMounted => "tell whether something is mounted on it" on,
    TellApart => "tell it from another name" on,
    Compare => "compare it" on,
    Enter => "enter it" on,
    // Reading.
    Read => "read it" on,
    ReadAll => "read all of it" on,
    ReadBack => "read back what was written" on,
    ReadXattrs => "read its extended attributes" on,
    ReadLink => "read the symbolic link" on,
    ReadMark => "read the mark" of,
    ReadMarksAbove => "read the marks of the directories above it" on,
    FindHoles => "find its holes" on,
    Hash => "hash it" on,
    LeaveCache => "take it out of the page cache" on,
    // Making and removing.
    Copy => "take it" from,
    CopyConsistent => "copy a consistent state of it" from,
    Create => "create the file" on,
    MakeDirectory => "make the directory" on,
    MakeSymlink => "make the symbolic link" on,
    MakeNode => "make the special file" on,
    MakeEntry => "make it" on,
    MakeEqual => "have a mover make it, and what is below it, equal" on,
    CopyWith => "have the program of --copy-with make it" on,
    LetReach => "let another program reach it" on,
    Link => "make the hard link" on,
    LinkSame => "link it to its first name" on,
    LinkAll => "link all its names" from,
    KeepLinks => "keep the table of its hard links" on,
    FindFirstLink => "find the file to link it to" on,
    HoldFirstLink => "keep hold of the file to link it to" on,
    HoldDirectory => "keep hold of the new directory" on,
    HoldUnfinished => "keep hold of its unfinished copy" on,
    Rename => "give it its name" on,
    Replace => "replace what stands in its place" on,
    ReplaceDirectory => "replace the directory" on,
    Remove => "remove it" from,
    RemoveDirectory => "remove the directory" from,
    RemoveMount => "remove what something is mounted on" from,
    RemoveSubvolume => "remove the subvolume" from,
    RemoveSource => "remove the source of this run" from,
    RemoveForeign => "remove a directory that may not be ours" from,
    SetAside => "put it into the trash" of,
    OpenTrash => "open the trash" of,
    // Content.
    Write => "write to it" on,
    SetLength => "set its length" on,
    Reserve => "reserve space for it" on,
    CopyOld => "copy its earlier content" on,
    NoteProgress => "note how far its copy has come" on,
    Flush => "make it durable" on,
    Close => "close it" on,
    // Attributes.
    SetOwner => "set its owner" on,
    SetGroup => "set its group" on,
    SetMode => "set its mode" on,
    SetTimes => "set its times" on,
    SetAcl => "set its ACL" on,
    SetXattr => "set an extended attribute of it" on,
    RemoveXattr => "remove an extended attribute of it" on,
    SetPrivileged => "set a capability or trusted attribute of it" on,
    SetAttributes => "set its attributes" on,
    SetMounted => "set the attributes of what is mounted on it" on,
    // The replica as a whole.
    Lock => "lock it" on,
    KeepLock => "keep its lock" on,
    Change => "begin to change it" on,
    FindAgain => "find the root again at its path" on,
    Mark => "write the mark" of,
    FlushMark => "make the mark durable" of,
    // Another host.
    ReachAgent => "reach the agent" of,
    Understand => "understand the agent" of,
    Obey => "carry out the request" on,
    SendRequest => "send the whole request about it" to,
    SendReply => "send the whole reply about it" from,
    AddLines => "add connections" to,
    // Behind the others, which keep their numbers on the wire.
    RemoveExtras => "remove what the source does not have" from,
}

impl Act {
    /// The words with the tree: `open it on the source`.
    pub fn on(self, side: Side) -> String {
        self.on_tree(&side.tree())
    }

    /// The words with a tree that is neither source nor replica: `open it on "DIR"`.
    pub fn on_tree(self, tree: &str) -> String {
        format!("{} {} {tree}", self.words(), self.joint())
    }
}
