//! Expands `~` in every path of the file and of the command line.

use std::path::PathBuf;

use crate::model::WarehouseKind;

use super::{
    ArchiveChoice, Overrides,
    error::{ConfigError, invalid},
    file::ConfigFile,
    tilde::expand_tilde,
};

/// Replaces `~` by the home folder in every path of the file and of the command line.
///
/// # Errors
/// A path that cannot be used, with the setting or flag that has it.
pub(super) fn expand_all(file: &mut ConfigFile, overrides: &mut Overrides) -> Result<(), ConfigError> {
    let archive_flag = match &mut overrides.archive {
        Some(ArchiveChoice::Folder(path)) => Some(path),
        _ => None,
    };
    for kind in WarehouseKind::ALL {
        expand(&format!("[warehouse] {}", kind.name()), file.warehouse.path_of(kind).as_mut())?;
    }
    for (kind, path) in &mut overrides.warehouses {
        expand(&format!("--{}", kind.name()), Some(path))?;
    }
    let paths = [
        ("[service] api_key_file", file.service.api_key_file.as_mut()),
        ("[warehouse] publish", file.warehouse.publish.as_mut()),
        ("[warehouse] extension_directory", file.warehouse.extension_directory.as_mut()),
        ("[state] path", file.state.path.as_mut()),
        ("[archive] path", file.archive.path.as_mut()),
        ("[recordings] path", file.recordings.path.as_mut()),
        ("[serve] token_file", file.serve.token_file.as_mut()),
        ("[serve] status_token_file", file.serve.status_token_file.as_mut()),
        ("[metrics] textfile", file.metrics.textfile.as_mut()),
        ("[notify] url_file", file.notify.url_file.as_mut()),
        ("--api-key-file", overrides.api_key_file.as_mut()),
        ("--state", overrides.state.as_mut()),
        ("--archive", archive_flag),
    ];
    paths.into_iter().try_for_each(|(setting, path)| expand(setting, path))
}

fn expand(setting: &str, path: Option<&mut PathBuf>) -> Result<(), ConfigError> {
    let Some(path) = path else { return Ok(()) };
    *path = expand_tilde(std::mem::take(path)).map_err(|problem| invalid(setting, problem))?;
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::config::keys::{ValueType, keys};

    #[test]
    fn a_tilde_is_expanded_in_every_path_of_the_file() {
        let of_paths = keys().filter(|key| matches!(key.value_type, ValueType::Path | ValueType::PathOrNone));
        for key in of_paths {
            let text = format!("[{}]\n{} = \"~nobody/x\"\n", key.table, key.name);
            let mut file = ConfigFile::parse(&text, Path::new("studysync.toml")).unwrap();
            // The home folder of another user is refused, with the name of the setting.
            let error = expand_all(&mut file, &mut Overrides::default()).unwrap_err().to_string();
            assert!(error.contains(&key.label()), "{}: {error}", key.label());
        }
    }
}
