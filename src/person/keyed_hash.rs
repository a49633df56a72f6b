//! The key of the suppression list: hashes identifiers and encrypts texts.
//!
//! A keyed hash reveals nothing without the key. A plain hash would reveal a visitor's number after a million guesses.

use std::{fmt, fs, path::Path, str::FromStr};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use ring::{
    aead::{Aad, CHACHA20_POLY1305, LessSafeKey, NONCE_LEN, Nonce, UnboundKey},
    hmac,
    rand::{SecureRandom, SystemRandom},
};
use serde::{Deserialize, Deserializer, Serialize, Serializer, de::Error as _};

use super::SuppressionError;
use crate::{
    files::{self, FileError},
    model::Identifier,
};

const KEY_BYTES: usize = 32;
/// Length of a stored hash. With 128 bits, two identifiers never share a hash by chance.
const HASH_BYTES: usize = 16;

/// Encrypted bytes, in Base64.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SealedBytes {
    pub nonce: String,
    pub sealed: String,
}

/// A hash of an identifier, computed with the key.
#[derive(Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct KeyedHash([u8; HASH_BYTES]);

impl fmt::Debug for KeyedHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl fmt::Display for KeyedHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().try_for_each(|byte| write!(f, "{byte:02x}"))
    }
}

impl FromStr for KeyedHash {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        from_hex(text).map(KeyedHash).ok_or_else(|| format!("'{text}' is not a hash"))
    }
}

impl Serialize for KeyedHash {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for KeyedHash {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        String::deserialize(deserializer)?.parse().map_err(D::Error::custom)
    }
}

/// Decodes exactly `N` bytes from hexadecimal digits; `None` for any other text.
fn from_hex<const N: usize>(text: &str) -> Option<[u8; N]> {
    let is_hex = text.len() == 2 * N && text.bytes().all(|digit| digit.is_ascii_hexdigit());
    let byte = |at: usize| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap_or_default();
    is_hex.then(|| std::array::from_fn(byte))
}

/// The key of the suppression list, which is never printed.
#[derive(Clone)]
pub struct IdentifierKey(hmac::Key);

impl fmt::Debug for IdentifierKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("IdentifierKey")
    }
}

impl IdentifierKey {
    fn new(secret: [u8; KEY_BYTES]) -> IdentifierKey {
        IdentifierKey(hmac::Key::new(hmac::HMAC_SHA256, &secret))
    }

    /// Reads the key from a file; `None` if the file does not exist.
    pub fn read(path: &Path) -> Result<Option<IdentifierKey>, SuppressionError> {
        match fs::read_to_string(path) {
            Err(source) if source.kind() == std::io::ErrorKind::NotFound => Ok(None),
            Err(source) => Err(FileError::of("read", path)(source).into()),
            Ok(text) => match from_hex(text.trim()) {
                Some(secret) => Ok(Some(IdentifierKey::new(secret))),
                None => Err(SuppressionError::Damaged { path: path.to_owned(), why: "it is not a key".to_owned() }),
            },
        }
    }

    /// Creates a random key and writes it durably to a file that only this user can read. Fails if the file exists.
    pub fn create(path: &Path) -> Result<IdentifierKey, SuppressionError> {
        let failed = FileError::of("write", path);
        let mut secret = [0; KEY_BYTES];
        let no_random = |_| failed(std::io::Error::other("the system has no random bytes"));
        SystemRandom::new().fill(&mut secret).map_err(no_random)?;
        let text: String = secret.iter().map(|byte| format!("{byte:02x}")).collect();
        if path.try_exists().map_err(failed)? {
            return Err(failed(std::io::ErrorKind::AlreadyExists.into()).into());
        }
        // The key is written atomically: a kill must not leave an incomplete key, which would be useless and never
        // replaced.
        files::write_private(path, text.as_bytes()).map_err(failed)?;
        Ok(IdentifierKey::new(secret))
    }

    /// Returns the hash of an identifier.
    pub fn hash(&self, identifier: &Identifier) -> KeyedHash {
        self.hash_parts(&[identifier.kind.name().as_bytes(), identifier.value.as_bytes()])
    }

    /// Returns the hash of several texts. `["a", "bc"]` and `["ab", "c"]` have different hashes.
    pub fn hash_parts(&self, parts: &[&[u8]]) -> KeyedHash {
        let derived = self.derive(parts);
        KeyedHash(std::array::from_fn(|at| derived[at]))
    }

    /// Encrypts bytes with a key that is derived from this key and `parts`. The bytes can only be decrypted with the
    /// same key, `parts` and `owner`, such as the id of an erasure. Returns `None` if the system has no random bytes.
    pub fn seal(&self, parts: &[&[u8]], owner: &str, mut bytes: Vec<u8>) -> Option<SealedBytes> {
        let mut nonce = [0; NONCE_LEN];
        SystemRandom::new().fill(&mut nonce).ok()?;
        let cipher = self.cipher(parts)?;
        let aad = Aad::from(owner.as_bytes());
        cipher.seal_in_place_append_tag(Nonce::assume_unique_for_key(nonce), aad, &mut bytes).ok()?;
        Some(SealedBytes { nonce: STANDARD.encode(nonce), sealed: STANDARD.encode(bytes) })
    }

    /// Decrypts bytes that [`IdentifierKey::seal`] encrypted; `None` if the key, `parts` or `owner` differ, or the
    /// bytes were changed.
    pub fn open(&self, parts: &[&[u8]], owner: &str, sealed: &SealedBytes) -> Option<Vec<u8>> {
        let nonce: [u8; NONCE_LEN] = STANDARD.decode(&sealed.nonce).ok()?.try_into().ok()?;
        let mut bytes = STANDARD.decode(&sealed.sealed).ok()?;
        let aad = Aad::from(owner.as_bytes());
        let opened = self.cipher(parts)?.open_in_place(Nonce::assume_unique_for_key(nonce), aad, &mut bytes).ok()?;
        Some(opened.to_vec())
    }

    /// Creates the cipher whose key is derived from this key and `parts`. `None` cannot happen: the length is right.
    fn cipher(&self, parts: &[&[u8]]) -> Option<LessSafeKey> {
        UnboundKey::new(&CHACHA20_POLY1305, &self.derive(parts)).ok().map(LessSafeKey::new)
    }

    /// Derives 32 bytes from the key and the parts with HMAC-SHA-256. The length of each part is hashed before the
    /// part.
    fn derive(&self, parts: &[&[u8]]) -> [u8; KEY_BYTES] {
        let mut context = hmac::Context::with_key(&self.0);
        for part in parts {
            context.update(&(part.len() as u64).to_le_bytes());
            context.update(part);
        }
        let tag = context.sign();
        std::array::from_fn(|at| tag.as_ref()[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::model::IdentifierKind;

    #[test]
    fn p9_a_hash_depends_on_the_key_and_the_kind() {
        let folder = tempfile::tempdir().unwrap();
        let (first, second) = (folder.path().join("a"), folder.path().join("b"));
        let (key, other) = (IdentifierKey::create(&first).unwrap(), IdentifierKey::create(&second).unwrap());
        let anna = Identifier::read(IdentifierKind::UserId, "anna").unwrap();
        let as_anonymous = Identifier::read(IdentifierKind::AnonymousId, "anna").unwrap();
        let hash = key.hash(&anna);
        assert!(hash != other.hash(&anna) && hash != key.hash(&as_anonymous));
        assert!(key.hash_parts(&[b"a", b"bc"]) != key.hash_parts(&[b"ab", b"c"]));
        assert!(IdentifierKey::read(&first).unwrap().unwrap().hash(&anna) == hash);
        assert_eq!(hash.to_string().parse(), Ok(hash));
        assert!(!format!("{key:?}{hash}").contains("anna"));
        use std::os::unix::fs::PermissionsExt;
        assert_eq!(fs::metadata(&first).unwrap().permissions().mode() & 0o777, 0o600);
    }

    #[test]
    fn p9_a_key_file_is_never_incomplete() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        // A temporary file that a kill left behind.
        fs::write(path.with_extension("new"), "ab").unwrap();
        let is_done = std::sync::atomic::AtomicBool::new(false);
        let sizes = std::thread::scope(|scope| {
            let watch = scope.spawn(|| {
                let mut sizes = std::collections::BTreeSet::new();
                while !is_done.load(std::sync::atomic::Ordering::SeqCst) {
                    sizes.extend(fs::metadata(&path).map(|file| file.len()));
                }
                sizes
            });
            for _ in 0..300 {
                IdentifierKey::create(&path).unwrap();
                assert!(IdentifierKey::read(&path).unwrap().is_some());
                fs::remove_file(&path).unwrap();
            }
            is_done.store(true, std::sync::atomic::Ordering::SeqCst);
            watch.join().unwrap()
        });
        assert!(sizes.iter().all(|bytes| *bytes == 2 * KEY_BYTES as u64), "{sizes:?}");
    }

    #[test]
    fn a_damaged_key_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("key");
        assert!(IdentifierKey::read(&path).unwrap().is_none());
        fs::write(&path, "hello").unwrap();
        assert!(matches!(IdentifierKey::read(&path), Err(SuppressionError::Damaged { .. })));
        assert!(IdentifierKey::create(&path).is_err(), "an existing file is never replaced");
    }
}
