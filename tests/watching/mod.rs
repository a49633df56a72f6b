//! Metrics and notifications: the textfile, notifications, their receivers, and the same messages everywhere.
//! `serve/watching` tests what `serve` shows.

mod notify;
#[cfg(feature = "otlp")]
mod otlp;
mod receiver;
mod receivers;
mod textfile;
mod told_command;
mod words;

use std::path::{Path, PathBuf};

use crate::harness::{ALL_FLAGS, KEY_VARIABLE, Place, Service};

pub use receiver::{Answer, Receiver};

/// A place with these lines in its configuration, and a textfile.
pub fn place_for(service: &Service, lines: &str) -> Place {
    place_at(&service.base_url(), lines)
}

/// The same for any address.
pub fn place_at(base_url: &str, lines: &str) -> Place {
    Place::at(base_url)
        .without_parquet()
        .with_config(&format!("{ALL_FLAGS}[metrics]\ntextfile = \"studysync.prom\"\n{lines}"))
}

/// Returns the value of a metric in the textfile of a place.
pub fn metric(place: &Place, name: &str) -> Option<f64> {
    let text = std::fs::read_to_string(place.path("studysync.prom")).ok()?;
    crate::harness::sample(&text, name)
}

/// The place with a key that the service refuses.
pub fn with_wrong_key(place: Place) -> Place {
    place.with_env(KEY_VARIABLE, "another-key")
}

/// The folder to which `scripts/test-tools.sh` installs Python packages; `None` if it could not.
pub fn python_packages() -> Option<PathBuf> {
    let target = Path::new(env!("CARGO_BIN_EXE_studysync")).parent()?.parent()?;
    let packages = target.join("test-python");
    if !packages.join("pinned").exists() {
        println!("SKIPPED: {} is missing (scripts/test-tools.sh installs it)", packages.display());
        return None;
    }
    Some(packages)
}
