//! Default values that several files of this folder use. The template prints the same values.

/// The configuration file that is read if it exists and neither `--config` nor `STUDYSYNC_CONFIG` names a file.
pub const CONFIG_FILE_NAME: &str = "studysync.toml";
/// Days of history that the first sync reads if the configuration sets no start.
pub const FIRST_SYNC_DAYS: i64 = 30;

/// The address in the file that `init` writes. The program refuses it until the user replaces it.
pub(super) const EXAMPLE_URL: &str = "https://api.example.com";
pub(super) const API_KEY_ENV: &str = "STUDYSYNC_API_KEY";
pub(super) const ENVIRONMENT: &str = "default";
pub(super) const TIMEOUT_SECS: u64 = 60;
pub(super) const IN_FLIGHT_MAX: usize = 4;
pub(super) const PATIENCE_SECS: u64 = 3600;
pub(super) const SETTLE_SECS: u64 = 600;
pub(super) const MEMORY_LIMIT_MB: u64 = 512;
/// The smallest memory limit per warehouse, in MiB.
pub(super) const MEMORY_LIMIT_MB_MIN: u64 = 256;
pub(super) const LOCK_WAIT_SECS: u64 = 60;
pub(super) const STATE_PATH: &str = "studysync-state/checkpoints.sqlite";
pub(super) const ARCHIVE_FOLDER: &str = "archive";
/// Days after which vanished sessions are erased, if `on_vanish = "erase"`.
pub(super) const GRACE_DAYS: u32 = 30;
/// Age at which a stored user is read again.
pub(super) const REFRESH_AFTER: &str = "30d";
/// Time after which a user that the service did not know is requested again.
pub(super) const ASK_AGAIN_AFTER: &str = "7d";
/// The value that switches off a setting which otherwise takes a path, a schedule or a length of time.
pub(super) const OFF: &str = "off";
