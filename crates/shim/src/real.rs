//! The functions that this library stands in the place of.

use core::ffi::{CStr, c_char, c_void};
use core::sync::atomic::{AtomicPtr, Ordering::Relaxed};

/// The function of this name that comes next in the order of libraries, found when it is first
/// called; null if there is none.
pub fn find(name: &CStr, known: &AtomicPtr<c_void>) -> *mut c_void {
    let at = known.load(Relaxed);
    if !at.is_null() {
        return at;
    }
    // SAFETY: the name ends.
    let at = unsafe { dlsym(libc::RTLD_NEXT, name.as_ptr()) };
    known.store(at, Relaxed);
    at
}

#[cfg(not(old_glibc))]
unsafe fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void {
    // SAFETY: by the caller.
    unsafe { libc::dlsym(library, name) }
}

#[cfg(old_glibc)]
unsafe extern "C" {
    /// dlsym(3) as it was called before glibc 2.34.
    #[link_name = "dlsym_before_2_34"]
    fn dlsym(library: *mut c_void, name: *const c_char) -> *mut c_void;
}

#[cfg(all(old_glibc, target_arch = "x86_64"))]
core::arch::global_asm!(".symver dlsym_before_2_34, dlsym@GLIBC_2.2.5");
#[cfg(all(old_glibc, target_arch = "aarch64"))]
core::arch::global_asm!(".symver dlsym_before_2_34, dlsym@GLIBC_2.17");

/// The name of a function, with its end.
#[macro_export]
macro_rules! name_of {
    ($name:ident) => {{
        const NAME: &core::ffi::CStr =
            match core::ffi::CStr::from_bytes_with_nul(concat!(stringify!($name), "\0").as_bytes())
            {
                Ok(name) => name,
                Err(_) => panic!("a name ends"),
            };
        NAME
    }};
}

/// Calls the function of the C library, or says that there is none (ENOSYS).
#[macro_export]
macro_rules! real {
    ($name:ident($($arg:expr => $t:ty),*) -> $r:ty) => {{
        static KNOWN: core::sync::atomic::AtomicPtr<core::ffi::c_void> =
            core::sync::atomic::AtomicPtr::new(core::ptr::null_mut());
        let at = $crate::real::find($crate::name_of!($name), &KNOWN);
        if at.is_null() {
            $crate::sys::fail(libc::ENOSYS);
            <$r as $crate::real::Failure>::FAILURE
        } else {
            // A thread that is cancelled in it unwinds through this library.
            let function: unsafe extern "C-unwind" fn($($t),*) -> $r = core::mem::transmute(at);
            function($($arg),*)
        }
    }};
}

/// What a function that is not there returns.
pub trait Failure {
    const FAILURE: Self;
}

impl Failure for libc::c_int {
    const FAILURE: Self = -1;
}

impl Failure for isize {
    const FAILURE: Self = -1;
}

impl<T> Failure for *mut T {
    const FAILURE: Self = core::ptr::null_mut();
}
