//! Ends of a program: another one in its place, or none. And its children that are made past
//! pthread_atfork(3).

use crate::{life, name_of, real};
use core::arch::naked_asm;
use core::ffi::c_void;
use core::ptr;
use core::sync::atomic::AtomicPtr;
use libc::{c_char, c_int, pid_t};

type Words = *const *const c_char;

macro_rules! programs {
    ($($name:ident($($arg:ident: $t:ty),*);)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name($($arg: $t),*) -> c_int {
            life::replaced();
            unsafe { real!($name($($arg => $t),*) -> c_int) }
        }
    )*};
}

programs! {
    execve(path: *const c_char, words: Words, environment: Words);
    execv(path: *const c_char, words: Words);
    execvp(file: *const c_char, words: Words);
    execvpe(file: *const c_char, words: Words, environment: Words);
    fexecve(fd: c_int, words: Words, environment: Words);
    execveat(at: c_int, path: *const c_char, words: Words, environment: Words, flags: c_int);
}

/// One that runs if there is no such function in the C library, which there is.
unsafe extern "C" fn none() -> c_int {
    crate::sys::fail(libc::ENOSYS)
}

macro_rules! listing {
    ($($name:ident, $target:ident;)*) => {$(
        unsafe extern "C" fn $target() -> *const c_void {
            static KNOWN: AtomicPtr<c_void> = AtomicPtr::new(ptr::null_mut());
            life::replaced();
            match crate::real::find(name_of!($name), &KNOWN) {
                at if at.is_null() => none as *const c_void,
                at => at,
            }
        }

        /// Its words are arguments, any number of them: they stay where they are.
        #[cfg(target_arch = "x86_64")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            naked_asm!(
                "push rdi", "push rsi", "push rdx", "push rcx", "push r8", "push r9", "push rax",
                "call {target}",
                "mov r11, rax",
                "pop rax", "pop r9", "pop r8", "pop rcx", "pop rdx", "pop rsi", "pop rdi",
                "jmp r11",
                target = sym $target,
            )
        }

        /// Its words are arguments, any number of them: they stay where they are.
        #[cfg(target_arch = "aarch64")]
        #[unsafe(no_mangle)]
        #[unsafe(naked)]
        unsafe extern "C" fn $name() {
            naked_asm!(
                "stp x29, x30, [sp, #-80]!",
                "stp x0, x1, [sp, #16]", "stp x2, x3, [sp, #32]",
                "stp x4, x5, [sp, #48]", "stp x6, x7, [sp, #64]",
                "bl {target}",
                "mov x16, x0",
                "ldp x0, x1, [sp, #16]", "ldp x2, x3, [sp, #32]",
                "ldp x4, x5, [sp, #48]", "ldp x6, x7, [sp, #64]",
                "ldp x29, x30, [sp], #80",
                "br x16",
                target = sym $target,
            )
        }
    )*};
}

listing! {
    execl, execl_of_libc;
    execlp, execlp_of_libc;
    execle, execle_of_libc;
}

macro_rules! ending {
    ($($name:ident;)*) => {$(
        #[unsafe(no_mangle)]
        unsafe extern "C-unwind" fn $name(code: c_int) -> ! {
            life::ends();
            unsafe { real!($name(code => c_int) -> c_int) };
            loop {
                unsafe { libc::syscall(libc::SYS_exit_group, code) };
            }
        }
    )*};
}

ending! { _exit; _Exit; }

/// A fork(2) that calls no functions of pthread_atfork(3).
#[unsafe(no_mangle)]
unsafe extern "C-unwind" fn _Fork() -> pid_t {
    let child = unsafe { real!(_Fork() -> pid_t) };
    if child == 0 {
        unsafe { life::forked() };
    }
    child
}
