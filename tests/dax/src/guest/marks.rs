//! Marks that the plugin sees: no-ops whose displacement says "DAX" and a number. On real hardware they do nothing.

/// From here on the plugin counts crash points.
pub(crate) fn begin() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a no-op; it reads and writes nothing.
    unsafe {
        std::arch::asm!("nop dword ptr [rax + 0x44415800]", options(nostack, preserves_flags));
    };
}

/// The first `steps` steps have returned: no power failure from here on may lose them.
pub(crate) fn acknowledge(steps: u64) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a no-op; it reads and writes nothing.
    unsafe {
        std::arch::asm!("nop dword ptr [rax + 0x44415801]", in("rax") steps, options(nostack, preserves_flags));
    };
    #[cfg(not(target_arch = "x86_64"))]
    let _ = steps;
}

/// No crash points from here on.
pub(crate) fn end() {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a no-op; it reads and writes nothing.
    unsafe {
        std::arch::asm!("nop dword ptr [rax + 0x44415802]", options(nostack, preserves_flags));
    };
}
