//! The instructions that write a line back to persistent memory, and the fence behind them.
//!
//! | machine | write-back | fence |
//! | --- | --- | --- |
//! | x86-64 | `clwb`, else `clflushopt`, else `clflush` | `sfence` |
//! | ARMv8.2 and later | `dc cvap` | `dsb sy` |
//!
//! On others there is none and the `journal` domain is used.

use std::sync::atomic::AtomicU64;

/// Instruction with which a pool on the `dax` domain writes cache lines back.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum FlushInstruction {
    /// x86-64: writes back and keeps the line: the best.
    Clwb,
    /// x86-64: writes back and drops the line, unordered.
    ClflushOpt,
    /// x86-64: writes back and drops the line, ordered: works everywhere.
    Clflush,
    /// ARM: cleans the line to the point of persistence.
    DcCvap,
}

impl std::fmt::Display for FlushInstruction {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            FlushInstruction::Clwb => "clwb",
            FlushInstruction::ClflushOpt => "clflushopt",
            FlushInstruction::Clflush => "clflush",
            FlushInstruction::DcCvap => "dc cvap",
        })
    }
}

/// Best flush of an x86-64 processor: register edx of leaf 1 and ebx of leaf 7, 0 if there is no such leaf.
#[cfg(any(target_arch = "x86_64", test))]
fn from_cpuid(leaf1_edx: u32, leaf7_ebx: u32) -> Option<FlushInstruction> {
    const CLFSH: u32 = 1 << 19;
    const CLFLUSHOPT: u32 = 1 << 23;
    const CLWB: u32 = 1 << 24;
    if leaf7_ebx & CLWB != 0 {
        Some(FlushInstruction::Clwb)
    } else if leaf7_ebx & CLFLUSHOPT != 0 {
        Some(FlushInstruction::ClflushOpt)
    } else if leaf1_edx & CLFSH != 0 {
        Some(FlushInstruction::Clflush)
    } else {
        None
    }
}

/// Flush of an ARM processor: the auxiliary vector's AT_HWCAP, and the cache type register.
#[cfg(any(target_arch = "aarch64", test))]
fn from_arm_features(hardware_capabilities: u64, cache_type: u64) -> Option<FlushInstruction> {
    const DCPOP: u64 = 1 << 16;
    // Bits 16 to 19: the logarithm of the words of 4 bytes in the smallest data cache line.
    let line_bytes = 4u64 << (cache_type >> 16 & 0xF);
    (hardware_capabilities & DCPOP != 0 && line_bytes >= super::LINE_BYTES)
        .then_some(FlushInstruction::DcCvap)
}

/// `sys #3, c7, c12, #1, x0`: `dc cvap, x0`, as older assemblers do not know the name.
#[cfg(any(target_arch = "aarch64", test))]
const DC_CVAP_X0: u32 = system_instruction(3, 7, 12, 1, 0);
/// `dsb sy`
#[cfg(any(target_arch = "aarch64", test))]
const DSB_SY: u32 = 0xD503_309F | 0xF << 8;

/// The encoding of `sys #op1, Cn, Cm, #op2, Xt` (Arm Architecture Reference Manual, C6.2, "SYS").
#[cfg(any(target_arch = "aarch64", test))]
const fn system_instruction(op1: u32, cn: u32, cm: u32, op2: u32, register: u32) -> u32 {
    0xD508_0000 | op1 << 16 | cn << 12 | cm << 8 | op2 << 5 | register
}

#[cfg(target_arch = "x86_64")]
impl FlushInstruction {
    /// The best of this processor.
    pub(super) fn detect() -> Option<FlushInstruction> {
        use std::arch::x86_64::__cpuid_count;
        let leaves = __cpuid_count(0, 0).eax;
        let leaf7_ebx = if leaves >= 7 { __cpuid_count(7, 0).ebx } else { 0 };
        from_cpuid(__cpuid_count(1, 0).edx, leaf7_ebx)
    }

    /// Writes the line of the word back.
    #[inline]
    pub(super) fn write_back(self, word: &AtomicU64) {
        let address = word.as_ptr();
        match self {
            FlushInstruction::Clwb => {
                // SAFETY: the address is a live word of the mapping; the instruction changes no value. It is
                // a memory clobber for the compiler, so that earlier stores are issued before it.
                unsafe { std::arch::asm!("clwb [{}]", in(reg) address, options(nostack, preserves_flags)) };
            }
            FlushInstruction::ClflushOpt => {
                // SAFETY: as for clwb.
                unsafe {
                    std::arch::asm!("clflushopt [{}]", in(reg) address, options(nostack, preserves_flags));
                };
            }
            FlushInstruction::Clflush => {
                // SAFETY: as for clwb.
                unsafe {
                    std::arch::asm!("clflush [{}]", in(reg) address, options(nostack, preserves_flags));
                };
            }
            FlushInstruction::DcCvap => {}
        }
    }
}

/// Orders the write-backs, and the stores past the caches, before it with all stores after it.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn store_fence() {
    // SAFETY: every x86-64 processor has it; it changes no value. As a memory clobber it also keeps the
    // compiler from moving stores across.
    unsafe { std::arch::asm!("sfence", options(nostack, preserves_flags)) };
}

#[cfg(target_arch = "aarch64")]
impl FlushInstruction {
    /// The best of this processor.
    pub(super) fn detect() -> Option<FlushInstruction> {
        let cache_type: u64;
        // SAFETY: Linux lets programs read this register, or reads it for them.
        unsafe { std::arch::asm!("mrs {}, ctr_el0", out(reg) cache_type, options(nomem, nostack)) };
        // SAFETY: a look at the auxiliary vector.
        let capabilities = unsafe { libc::getauxval(libc::AT_HWCAP) };
        from_arm_features(capabilities, cache_type)
    }

    /// Writes the line of the word back.
    #[inline]
    pub(super) fn write_back(self, word: &AtomicU64) {
        // SAFETY: the address is a live word of the mapping; the instruction changes no value. It is a memory
        // clobber for the compiler, so that earlier stores are issued before it.
        unsafe {
            std::arch::asm!(".inst {}", const DC_CVAP_X0, in("x0") word.as_ptr(), options(nostack, preserves_flags));
        };
    }
}

/// Waits until the write-backs before it have reached the point of persistence.
#[cfg(target_arch = "aarch64")]
#[inline]
pub(super) fn store_fence() {
    // SAFETY: a barrier; it changes no value.
    unsafe { std::arch::asm!(".inst {}", const DSB_SY, options(nostack, preserves_flags)) };
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
impl FlushInstruction {
    pub(super) fn detect() -> Option<FlushInstruction> {
        None
    }

    pub(super) fn write_back(self, _word: &AtomicU64) {}
}

#[cfg(not(any(target_arch = "x86_64", target_arch = "aarch64")))]
pub(super) fn store_fence() {
    std::sync::atomic::fence(std::sync::atomic::Ordering::SeqCst);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_instruction_that_the_processor_has_is_taken() {
        let (clfsh, clflushopt, clwb) = (1 << 19, 1 << 23, 1 << 24);
        assert_eq!(from_cpuid(clfsh, clflushopt | clwb), Some(FlushInstruction::Clwb));
        assert_eq!(from_cpuid(0, clwb), Some(FlushInstruction::Clwb));
        assert_eq!(from_cpuid(clfsh, clflushopt), Some(FlushInstruction::ClflushOpt));
        assert_eq!(from_cpuid(clfsh, 0), Some(FlushInstruction::Clflush));
        assert_eq!(from_cpuid(!clfsh, !(clflushopt | clwb)), None, "no other bit counts");
        // Skylake-SP (clwb), Skylake client (clflushopt), Haswell, as they report leaf 7.
        assert_eq!(from_cpuid(0xBFEB_FBFF, 0xD39F_FFFB), Some(FlushInstruction::Clwb));
        assert_eq!(from_cpuid(0xBFEB_FBFF, 0x029C_6FBF), Some(FlushInstruction::ClflushOpt));
        assert_eq!(from_cpuid(0xBFEB_FBFF, 0x0000_27AB), Some(FlushInstruction::Clflush));
    }

    #[test]
    fn arm_needs_the_point_of_persistence_and_lines_that_we_step_over() {
        let (lines_of_64, lines_of_32) = (4 << 16, 3 << 16);
        assert_eq!(from_arm_features(1 << 16, lines_of_64), Some(FlushInstruction::DcCvap));
        assert_eq!(from_arm_features(1 << 16, 5 << 16), Some(FlushInstruction::DcCvap));
        assert_eq!(from_arm_features(!(1 << 16), lines_of_64), None);
        assert_eq!(from_arm_features(1 << 16, lines_of_32), None, "every second line would be left out");
    }

    /// The right sides are what LLVM's assembler makes of the names.
    #[test]
    fn arm_instructions_are_encoded_as_the_assembler_does() {
        assert_eq!(DC_CVAP_X0, 0xD50B_7C20);
        assert_eq!(system_instruction(3, 7, 10, 1, 0), 0xD50B_7A20, "dc cvac, x0");
        assert_eq!(system_instruction(3, 7, 4, 1, 3), 0xD50B_7423, "dc zva, x3");
        assert_eq!(DSB_SY, 0xD503_3F9F);
    }

    #[cfg(target_arch = "x86_64")]
    #[test]
    fn this_processor_has_one_and_it_changes_no_value() {
        let detected = FlushInstruction::detect().expect("every x86-64 processor has clflush");
        let word = AtomicU64::new(7);
        detected.write_back(&word);
        store_fence();
        assert_eq!(word.into_inner(), 7);
    }
}
