//! The paths of the file and of the command line: those that are meant in place of those that are written.

use std::path::PathBuf;

use super::{
    ArchiveChoice, Overrides,
    error::{ConfigError, value},
    file::ConfigFile,
    tilde::expanded,
};

/// Puts the paths that are meant in place of those that are written, in the file and on the command line.
pub(super) fn expand(file: &mut ConfigFile, overrides: &mut Overrides) -> Result<(), ConfigError> {
    let in_place = |place: &str, path: &mut Option<PathBuf>| -> Result<(), ConfigError> {
        *path = path.take().map(expanded).transpose().map_err(|problem| value(place, problem))?;
        Ok(())
    };
    in_place("[service] api_key_file", &mut file.service.api_key_file)?;
    in_place("[warehouse] duckdb", &mut file.warehouse.duckdb)?;
    in_place("[warehouse] parquet", &mut file.warehouse.parquet)?;
    in_place("[warehouse] publish", &mut file.warehouse.publish)?;
    in_place("[warehouse] extension_directory", &mut file.warehouse.extension_directory)?;
    in_place("[state] path", &mut file.state.path)?;
    in_place("[archive] path", &mut file.archive.path)?;
    in_place("[recordings] path", &mut file.recordings.path)?;
    in_place("[serve] token_file", &mut file.serve.token_file)?;
    in_place("[metrics] textfile", &mut file.metrics.textfile)?;
    in_place("[notify] url_file", &mut file.notify.url_file)?;
    in_place("--api-key-file", &mut overrides.api_key_file)?;
    in_place("--duckdb", &mut overrides.duckdb)?;
    in_place("--parquet", &mut overrides.parquet)?;
    in_place("--state", &mut overrides.state)?;
    if let Some(ArchiveChoice::Folder(path)) = &mut overrides.archive {
        *path = expanded(std::mem::take(path)).map_err(|problem| value("--archive", problem))?;
    }
    Ok(())
}
