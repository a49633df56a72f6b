//! `studysync init`: writes a commented configuration file.

use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    path::PathBuf,
};

use clap::Args;

use crate::config::{CONFIG_FILE_NAME, template};

use super::{CommandError, Context};

/// Writes a commented configuration file.
///
/// The file has every key with its default and a comment. An existing file is never overwritten.
///
/// Exit codes: 0 written; 1 cannot be written; 2 the file exists.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  studysync init
  studysync init /etc/studysync/studysync.toml")]
pub(super) struct InitArgs {
    /// File to write [default: the file of --config, else studysync.toml]
    #[arg(value_name = "FILE")]
    path: Option<PathBuf>,
}

/// Writes the configuration file. Fails if the file exists.
pub(super) fn run(args: &InitArgs, context: Context) -> Result<u8, CommandError> {
    let path = args.path.clone().or_else(|| context.config.clone()).unwrap_or_else(|| PathBuf::from(CONFIG_FILE_NAME));
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        crate::files::share_as_usual(&file)?;
        file.write_all(template().as_bytes())
    };
    write().map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => {
            CommandError::Usage(format!("{} exists already; it stays unchanged", path.display()))
        }
        _ => CommandError::failed(format!("cannot write {}", path.display()))(source),
    })?;
    context.printer.print(&format!(
        "{} is written. Next: set base_url in it, put the key into STUDYSYNC_API_KEY, and run `studysync check`.",
        path.display()
    ))?;
    Ok(0)
}
