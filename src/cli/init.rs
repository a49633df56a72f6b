//! `studysync init`: writes a commented configuration file.

use std::{fs::OpenOptions, io::Write, path::PathBuf};

use clap::Args;

use crate::config::{CONFIG_FILE_NAME, template};

use super::{CommandError, Context};

/// Writes a commented configuration file.
///
/// Every key stands in it with its default and a sentence on what it does. An existing file is never overwritten.
///
/// Exit codes: 0 written; 1 cannot be written; 2 the file exists.
#[derive(Args, Debug)]
pub(super) struct InitArgs {
    /// Where to write it [default: what --config names, else studysync.toml]
    #[arg(value_name = "FILE")]
    path: Option<PathBuf>,
}

pub(super) fn run(args: &InitArgs, context: Context) -> Result<u8, CommandError> {
    let path = args.path.clone().or_else(|| context.config.clone()).unwrap_or_else(|| PathBuf::from(CONFIG_FILE_NAME));
    let file = OpenOptions::new().write(true).create_new(true).open(&path);
    let mut file = match file {
        Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {
            return Err(CommandError::Usage(format!("{} exists already; it stays as it is", path.display())));
        }
        file => file.map_err(|source| CommandError::failed(format!("cannot write {}", path.display()), source))?,
    };
    crate::files::share_as_usual(&file)
        .and_then(|()| file.write_all(template().as_bytes()))
        .map_err(|source| CommandError::failed(format!("cannot write {}", path.display()), source))?;
    context.printer.print(&format!(
        "{} is written. Next: set base_url in it, put the key into STUDYSYNC_API_KEY, and run `studysync check`.",
        path.display()
    ))?;
    Ok(0)
}
