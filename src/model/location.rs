//! Where warehouses and archives are: on this machine, or in a bucket.

use std::{
    fmt,
    path::{Path, PathBuf},
    str::FromStr,
    time::Duration,
};

use url::Url;

use super::CatalogPlace;

/// Schemes that the program takes for an address of a bucket.
const SCHEMES: [&str; 4] = ["s3", "gs", "az", "abfss"];

/// The address of a folder of a bucket: `s3://bucket/folder`, `gs://bucket/folder`, `az://container/folder` or
/// `abfss://container@account.dfs.core.windows.net/folder`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BucketAddress {
    url: Url,
    /// The folder without slashes at its ends; empty for the whole bucket.
    prefix: String,
    /// The server of a test; `None` for the provider.
    test_server: Option<TestServer>,
}

/// A server with the interface of S3, which a test uses in place of the provider. It needs no credentials.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TestServer {
    pub endpoint: String,
    /// Delay before the first repetition of a request.
    pub first_delay: Duration,
}

impl BucketAddress {
    /// Returns the address of the same folder on a server of a test.
    #[must_use]
    pub fn on_test_server(self, server: TestServer) -> Self {
        Self { test_server: Some(server), ..self }
    }

    /// Returns the server of a test; `None` for the provider.
    pub fn test_server(&self) -> Option<&TestServer> {
        self.test_server.as_ref()
    }

    /// Returns true if a text names a bucket, and not a path.
    pub fn is_address(text: &str) -> bool {
        text.split_once("://").is_some_and(|(scheme, _)| SCHEMES.contains(&scheme))
    }

    /// Returns the folder without slashes at its ends; empty for the whole bucket.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns true if the folders are of one bucket.
    pub fn is_same_bucket(&self, other: &BucketAddress) -> bool {
        let (one, two) = (&self.url, &other.url);
        (one.scheme(), one.username(), one.host_str()) == (two.scheme(), two.username(), two.host_str())
            && self.test_server == other.test_server
    }

    /// Returns true if the folders are the same, or one is in the other.
    pub fn overlaps(&self, other: &BucketAddress) -> bool {
        let begins_with = |longer: &str, shorter: &str| {
            let rest = longer.strip_prefix(shorter);
            shorter.is_empty() || rest.is_some_and(|rest| rest.is_empty() || rest.starts_with('/'))
        };
        self.is_same_bucket(other)
            && (begins_with(&self.prefix, &other.prefix) || begins_with(&other.prefix, &self.prefix))
    }

    /// Returns the address as a URL.
    pub fn url(&self) -> &Url {
        &self.url
    }
}

impl FromStr for BucketAddress {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        if !Self::is_address(text) {
            return Err(format!("'{text}' does not begin with s3://, gs://, az:// or abfss://"));
        }
        let refused = |why: &str| format!("'{text}' is no address of a bucket: {why}");
        let url = Url::parse(text).map_err(|error| refused(&error.to_string()))?;
        if url.password().is_some() || url.query().is_some() || url.fragment().is_some() {
            return Err(refused("credentials and other parameters do not belong into it"));
        }
        if url.host_str().is_none_or(str::is_empty) {
            return Err(refused("it names no bucket"));
        }
        let prefix = url.path().trim_matches('/').to_owned();
        let has_empty_name = !prefix.is_empty() && prefix.split('/').any(str::is_empty);
        if has_empty_name || prefix.contains(['%', '*', '?', '[']) {
            return Err(refused("use letters, digits, - _ . and single slashes in the names of folders"));
        }
        Ok(Self { prefix, url, test_server: None })
    }
}

impl fmt::Display for BucketAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.url.as_str().trim_end_matches('/'))
    }
}

/// Where a warehouse or an archive is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Location {
    /// The file or folder. For a bucket: the folder of this machine for files that are needed now. For a catalog: its
    /// file, or a path of this machine beside which such files are.
    pub path: PathBuf,
    /// The folder of a bucket; `None` on this machine, and for a catalog.
    pub bucket: Option<BucketAddress>,
    /// The catalog that has the tables; `None` for a file or folder.
    pub catalog: Option<CatalogPlace>,
}

impl Location {
    /// Returns a location in a bucket. `path` is the folder of this machine for files that are needed now.
    pub fn in_bucket(bucket: BucketAddress, path: PathBuf) -> Location {
        Location { path, bucket: Some(bucket), catalog: None }
    }

    /// Returns a location in a catalog. `path` is the file of the catalog, or a path of this machine beside which files
    /// are made that are needed now.
    pub fn in_catalog(catalog: CatalogPlace, path: PathBuf) -> Location {
        Location { path, bucket: None, catalog: Some(catalog) }
    }

    /// Returns true for a file or folder of this machine.
    pub fn is_path(&self) -> bool {
        self.bucket.is_none() && self.catalog.is_none()
    }
}

impl<P: AsRef<Path>> From<P> for Location {
    fn from(path: P) -> Location {
        Location { path: path.as_ref().to_owned(), bucket: None, catalog: None }
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match (&self.bucket, &self.catalog) {
            (Some(bucket), _) => bucket.fmt(f),
            (None, Some(catalog)) => catalog.address.fmt(f),
            (None, None) => self.path.display().fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn folders_in_one_another_overlap() {
        for (one, other, expected) in [
            ("s3://bucket/a", "s3://bucket/a/", true),
            ("s3://bucket/a", "s3://bucket/a/b", true),
            ("s3://bucket", "s3://bucket/a", true),
            ("s3://bucket/a", "s3://bucket/ab", false),
            ("s3://bucket/a", "s3://other/a", false),
            ("s3://bucket/a", "gs://bucket/a", false),
        ] {
            let [one, other]: [BucketAddress; 2] = [one.parse().unwrap(), other.parse().unwrap()];
            assert_eq!((one.overlaps(&other), other.overlaps(&one)), (expected, expected), "{one} {other}");
        }
    }

    #[test]
    fn addresses_are_parsed() {
        for (text, prefix) in [
            ("s3://bucket", ""),
            ("s3://bucket/", ""),
            ("s3://bucket/a/b/", "a/b"),
            ("gs://bucket/a", "a"),
            ("az://container/a", "a"),
            ("abfss://container@account.dfs.core.windows.net/a/b", "a/b"),
        ] {
            let address: BucketAddress = text.parse().unwrap();
            assert_eq!((address.prefix(), address.to_string().as_str()), (prefix, text.trim_end_matches('/')));
        }
        for (text, expected) in [
            ("/tmp/folder", "does not begin"),
            ("http://host/bucket", "does not begin"),
            ("C:/a", "does not begin"),
            ("s3://", "names no bucket"),
            ("s3:///a", "names no bucket"),
            ("s3://key:secret@bucket/a", "credentials"),
            ("s3://bucket/a?versionId=1", "parameters"),
            ("s3://bucket/a#b", "parameters"),
            ("s3://bucket/a//b", "single slashes"),
            ("s3://bucket/a*", "letters, digits"),
            ("s3://bucket/a b", "letters, digits"),
        ] {
            let problem = text.parse::<BucketAddress>().unwrap_err();
            assert!(problem.contains(expected), "{text}: {problem}");
        }
    }
}
