//! Which bytes of a piece of text steer a scan through a JSON text: quotes, backslashes and control characters.

/// Bytes that are looked at together.
pub(super) const PIECE_BYTES: usize = 16;

/// A bit for each byte that steers, the lowest for the first.
#[cfg(target_arch = "x86_64")]
#[inline]
pub(super) fn steers(piece: &[u8; PIECE_BYTES]) -> u32 {
    // SAFETY: SSE2 is a part of every such processor.
    unsafe { sse2(piece) }
}

#[cfg(target_arch = "x86_64")]
#[inline]
#[target_feature(enable = "sse2")]
fn sse2(piece: &[u8; PIECE_BYTES]) -> u32 {
    use std::arch::x86_64::{
        _mm_cmpeq_epi8, _mm_min_epu8, _mm_movemask_epi8, _mm_or_si128, _mm_set_epi64x, _mm_set1_epi8,
    };

    let whole = u128::from_le_bytes(*piece);
    let bytes = _mm_set_epi64x((whole >> 64) as i64, whole as i64);
    let is_quote = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'"' as i8));
    let is_backslash = _mm_cmpeq_epi8(bytes, _mm_set1_epi8(b'\\' as i8));
    let is_control = _mm_cmpeq_epi8(_mm_min_epu8(bytes, _mm_set1_epi8(0x1F)), bytes);
    _mm_movemask_epi8(_mm_or_si128(_mm_or_si128(is_quote, is_backslash), is_control)) as u32
}

#[cfg(not(target_arch = "x86_64"))]
pub(super) use portable::steers;

/// For other processors, and to hold the one above to.
#[cfg(any(test, not(target_arch = "x86_64")))]
pub(super) mod portable {
    use super::PIECE_BYTES;

    #[inline]
    pub fn steers(piece: &[u8; PIECE_BYTES]) -> u32 {
        let steers = |byte: u8| matches!(byte, b'"' | b'\\' | 0..=0x1F);
        piece.iter().enumerate().fold(0, |bits, (at, byte)| bits | u32::from(steers(*byte)) << at)
    }
}
