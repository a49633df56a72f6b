//! Finds the bytes of a JSON string that need attention: quotes end the string, backslashes begin an escape, and
//! control characters are forbidden.

/// Bytes that one call examines.
pub(super) const CHUNK_BYTES: usize = 16;

/// Returns a mask with a one for each special byte of `chunk`. The lowest bit stands for the first byte.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn special_bytes(chunk: &[u8; CHUNK_BYTES]) -> u32 {
    // SAFETY: every x86-64 processor has SSE2.
    unsafe { sse2(chunk) }
}

/// Does the work of [`special_bytes`] with SSE2 instructions.
#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "sse2")]
fn sse2(chunk: &[u8; CHUNK_BYTES]) -> u32 {
    use std::arch::x86_64::{
        _mm_cmpeq_epi8, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128, _mm_set_epi64x, _mm_set1_epi8,
    };

    let value = u128::from_le_bytes(*chunk);
    let bytes = _mm_set_epi64x((value >> 64) as i64, value as i64);
    let is_quote = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'"' as i8));
    let is_backslash = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'\\' as i8));
    let is_control = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1F)), bytes);
    _mm_movemask_epi8(_mm_or_si128(_mm_or_si128(is_quote, is_backslash), is_control)) as u32
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) use portable::special_bytes;

/// The implementation for other processors, which also checks the SSE2 implementation in tests.
#[cfg(any(test, not(target_arch = "x86_64")))]
pub(super) mod portable {
    use super::CHUNK_BYTES;

    #[inline]
    pub fn special_bytes(chunk: &[u8; CHUNK_BYTES]) -> u32 {
        let is_special = |byte: u8| matches!(byte, b'"' | b'\\' | 0..=0x1F);
        chunk.iter().enumerate().fold(0, |bits, (at, byte)| bits | u32::from(is_special(*byte)) << at)
    }
}
