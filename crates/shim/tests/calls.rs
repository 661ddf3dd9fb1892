//! Each call that the library stands in the place of, in a program in C: what is announced, in
//! order, and how many gaps are counted.
#![allow(clippy::disallowed_methods)]

mod common;

use common::{Agent, compiled, library, library_for_old_systems};
use std::path::Path;

/// The call, what is announced, and the gaps.
const ROWS: &[(&str, &[&str], u64)] = &[
    ("open_written", &["w n"], 0),
    ("open_not_written", &["w n"], 0),
    ("open_emptied", &["w f"], 0),
    ("open_made_only", &["w n"], 0),
    ("open_read_only", &[], 0),
    ("open_failed", &[], 0),
    ("open64_written", &["w n"], 0),
    ("openat_written", &["w d/n"], 0),
    ("openat64_written", &["w d/n"], 0),
    ("creat_written", &["w n"], 0),
    ("creat64_written", &["w n"], 0),
    ("open_2", &["w f"], 0),
    ("open64_2", &["w f"], 0),
    ("openat_2", &["w d/g"], 0),
    ("openat64_2", &["w d/g"], 0),
    ("by_handle", &["w f"], 0),
    ("temporary", &["w tmp_*", "w tmp_*", "w tmp_*"], 0),
    ("temporary64", &["w tmp_*", "w tmp_*", "w tmp_*"], 0),
    ("temporary_dir", &["c tmp_*"], 0),
    ("fopen_modes", &["w n", "w f", "w d/g"], 0),
    ("fopen64_written", &["w n"], 0),
    ("freopen_written", &["w n", "c mark", "w f"], 0),
    ("freopen_64", &["w n"], 0),
    ("fdopen_written", &["w n"], 0),
    ("fcloseall_then_exit", &["c mark", "w n"], 0),
    ("tmpfile_written", &[], 0),
    ("dup2_over", &["w n", "c mark"], 0),
    ("dup3_over", &["w n", "c mark"], 0),
    ("dup2_failed", &["c mark", "w n"], 0),
    ("dup2_of_itself", &["c mark", "w n"], 0),
    ("copies", &["c mark", "w n"], 0),
    ("close_range_all", &["w n", "c mark"], 0),
    ("close_range_later", &["c mark", "w n"], 0),
    ("closefrom_all", &["w n", "c mark"], 0),
    ("exit_open", &["c mark", "w n"], 0),
    ("exit_buffered", &["c mark", "w n"], 0),
    ("exit_at_once", &["c mark", "w n"], 0),
    ("exit_by_c", &["c mark", "w n"], 0),
    ("exit_quickly", &["c mark", "w n"], 0),
    ("main_thread_is_gone", &["w n"], 0),
    ("closed_after_main_thread", &["w n", "c mark"], 0),
    ("forked_writes", &["w n", "c mark", "w n"], 0),
    ("forked_oddly", &["w n"], 0),
    ("vforked_runs", &["w m", "c mark", "w n"], 0),
    ("spawned_writes", &["w n", "c mark"], 0),
    ("spawnedp_writes", &["w n", "c mark"], 0),
    ("system_writes", &["w n", "c mark"], 0),
    // The cat, and the shell that has opened it for it.
    ("popen_writes", &["w n", "w n", "c mark"], 0),
    ("exec_l", &["w n"], 0),
    ("exec_lp", &["w n"], 0),
    ("exec_le", &["w n"], 0),
    ("exec_v", &["w n"], 0),
    ("exec_vp", &["w n"], 0),
    ("exec_ve", &["w n"], 0),
    ("exec_vpe", &["w n"], 0),
    ("exec_fd", &["w n"], 0),
    ("exec_at", &["w n"], 0),
    // The program that they follow has left it open twice, for the shell and for mkdir.
    ("exec_passes_on", &["c mark", "w n", "w n", "w n", "w n"], 0),
    ("exec_failed", &["w n", "w n", "c mark", "w n"], 0),
    ("truncate_path", &["w f", "w f"], 0),
    ("truncate_open", &["w f"], 0),
    ("given_room", &["w n"], 0),
    ("copied_by_kernel", &["w n"], 0),
    ("sent_to", &["w n"], 0),
    ("spliced_to", &["w n"], 0),
    ("unseen_then_cut", &["w n"], 0),
    // A plain system call opens what nobody sees written.
    ("unseen_then_written", &[], 0),
    ("closed_unseen", &[], 1),
    ("received", &["w n"], 0),
    ("nameless_for_ever", &[], 0),
    ("nameless_then_named", &["c n", "w n"], 0),
    ("nameless_named_empty", &["c n", "w n"], 0),
    ("memory_unmapped", &["w f", "c mark", "w f"], 0),
    (
        "memory_in_parts",
        &["w f", "c mark", "w f", "w f", "w f", "c end"],
        0,
    ),
    ("memory_until_exit", &["w f", "c mark", "w f"], 0),
    ("memory_until_exit_at_once", &["w f", "c mark", "w f"], 0),
    ("memory_until_exec", &["w f", "c mark", "w f"], 0),
    (
        "memory_synced",
        &["w f", "c mark", "w f", "c end", "w f"],
        0,
    ),
    (
        "memory_moved",
        &["w f", "c mark", "c end", "w f", "c over"],
        0,
    ),
    ("memory_covered", &["w f", "c mark", "w f", "c end"], 0),
    ("memory_private", &[], 0),
    (
        "names_made",
        &[
            "c a", "c d/b", "c c", "c d/d", "c e1", "c d/f", "c g", "c d/h", "c i", "c d/j",
        ],
        0,
    ),
    ("names_not_made", &[], 0),
    ("names_removed", &["d f", "d d/g", "d e", "d d"], 0),
    ("removed_by_c", &["d f", "d e"], 0),
    (
        "names_changed",
        &["r f n", "r d/g o", "r o d/p", "x n d/p"],
        0,
    ),
    ("left_whiteout", &["r f n"], 0),
    ("came_and_went", &["r f", "r d/came"], 0),
    ("linked_from_elsewhere", &[], 0),
    ("socket_named", &["c s"], 0),
    (
        "path_forms",
        &[
            "c ld",
            "w d/n",
            "c a",
            "c d/b",
            "m d",
            "c c",
            "r d/b e/b",
            "d e/b",
        ],
        0,
    ),
    ("renamed_while_open", &["r n d/m", "r d dd", "w dd/m"], 0),
    ("elsewhere_while_open", &["w n"], 0),
    ("same_name_elsewhere", &["w n", "w d/n"], 0),
    ("link_in_its_place", &["r n d/m", "c n", "w d/m"], 0),
    ("directory_renamed", &["r d dd", "c d", "w dd/n"], 0),
    ("removed_while_open", &["d n"], 0),
    // Which other name it is the kernel does not tell.
    ("other_name_while_open", &["c other", "d f"], 1),
    ("named_as_if_deleted", &["w x (deleted)"], 0),
    ("odd_names", &["w a b\\n\\xff", "c \\xfe"], 0),
    // A file and a directory whose paths are too long for the kernel to tell.
    ("too_deep", &[], 2),
    ("beside", &[], 0),
    ("modes", &["m f", "m f", "m d/g"], 0),
    ("owners", &["m f", "m l", "m f", "m d/g", "m l", "m f"], 0),
    (
        "times",
        &["m f", "m f", "m l", "m f", "m d/g", "m f", "m l", "m d/g"],
        0,
    ),
    ("extended", &["m f", "m f", "m l", "m l", "m f", "m f"], 0),
    ("by_proc", &["m d/g"], 0),
];

#[test]
fn each_call_is_announced_as_what_it_did() {
    let program = compiled("calls", &[]);
    let mut wrong = Vec::new();
    for (name, expected, gaps) in ROWS {
        let mut agent = Agent::new();
        let output = agent.command(&program).arg(name).output().expect("starts");
        let announced = agent.announced();
        let is_quiet = output.status.success() && output.stdout.is_empty();
        if !is_quiet || !output.stderr.is_empty() {
            wrong.push(format!("{name}: {output:?}"));
        } else if announced.all != *expected || announced.gaps != *gaps {
            wrong.push(format!("{name}: {announced:?}"));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

#[test]
fn the_table_has_each_call_of_the_program() {
    let program = compiled("calls", &[]);
    let output = std::process::Command::new(program)
        .output()
        .expect("starts");
    let text = String::from_utf8(output.stdout).expect("text");
    // That one has a test of its own.
    let names = text.lines().filter(|name| *name != "cancelled_in_close");
    let of_table: Vec<&str> = ROWS.iter().map(|(name, _, _)| *name).collect();
    assert_eq!(names.collect::<Vec<_>>(), of_table);
}

#[test]
fn a_thread_that_is_cancelled_in_close_announces_first() {
    for library in [library(), library_for_old_systems()] {
        cancelled_in_close(&library);
    }
}

fn cancelled_in_close(library: &Path) {
    let mut agent = Agent::new();
    let mut command = agent.command(compiled("calls", &[]));
    command.arg("cancelled_in_close").env("LD_PRELOAD", library);
    let output = command.output().expect("it starts");
    assert!(output.status.success(), "{output:?}");
    let announced = agent.announced();
    assert_eq!(announced.gaps, 0);
    let written = announced.all.iter().filter(|text| *text == "w n").count();
    assert_eq!((written, announced.all.len()), (300, 301));
}
