//! Destinations, and remedies of failures.

use super::*;

#[test]
fn directory_below_setgid_is_private() {
    for (shown, expected) in [
        ("1000 700", true),
        ("1000 2700", true),
        ("1001 700", false),
        ("1000 2770", false),
        ("1000 750", false),
        ("", false),
    ] {
        assert_eq!(is_private(shown, 1000), expected, "{shown}");
    }
}

#[test]
fn directory_in_the_way_has_its_remedy() {
    let cause = "a directory that is not empty goes only with --delete";
    assert!(remedy(cause, "take it away").contains("move the directory away"));
    assert!(!remedy("permission denied", "take it away").contains("move"));
}
