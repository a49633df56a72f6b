//! `studysync init`: writes a commented configuration file.

use std::{
    fs::OpenOptions,
    io::{self, Write as _},
    path::{Path, PathBuf},
};

use clap::Args;

use crate::config::{CONFIG_FILE_NAME, named_config, template};

use super::{CommandError, Context};

/// Writes a commented configuration file.
///
/// The file has the keys that a new user sets, or with --full every key with its default. An existing file is never
/// overwritten.
///
/// Exit codes: 0 written; 1 cannot be written; 2 the file exists.
#[derive(Args, Debug)]
#[command(after_help = "Examples:
  studysync init --base-url https://feedback.example.com
  studysync init --full /etc/studysync/studysync.toml")]
pub(super) struct InitArgs {
    /// File to write [default: the file of --config or STUDYSYNC_CONFIG, else studysync.toml]
    #[arg(value_name = "FILE")]
    path: Option<PathBuf>,

    /// Address of the service, without /v1/responses
    #[arg(long, value_name = "URL", value_parser = parse_address)]
    base_url: Option<String>,

    /// Write every key, most of them commented out
    #[arg(long)]
    full: bool,
}

/// Writes the configuration file. Fails if the file exists.
pub(super) fn run(args: &InitArgs, context: Context) -> Result<u8, CommandError> {
    let path = match &args.path {
        Some(path) => path.clone(),
        None => named_config(context.config.clone())?.unwrap_or_else(|| PathBuf::from(CONFIG_FILE_NAME)),
    };
    let text = template(args.full, args.base_url.as_deref());
    let write = || -> io::Result<()> {
        let mut file = OpenOptions::new().write(true).create_new(true).open(&path)?;
        crate::files::share_as_usual(&file)?;
        file.write_all(text.as_bytes())
    };
    write().map_err(|source| match source.kind() {
        io::ErrorKind::AlreadyExists => {
            CommandError::Usage(format!("{} exists already; it stays unchanged", path.display()))
        }
        _ => CommandError::failed(format!("cannot write {}", path.display()))(source),
    })?;
    context.printer.print_wrapped(&format!(
        "{} is written. Next:{} put the key into STUDYSYNC_API_KEY, and run `studysync check{}`.",
        path.display(),
        if args.base_url.is_some() { "" } else { " set base_url in it," },
        if path.as_path() == Path::new(CONFIG_FILE_NAME) {
            String::new()
        } else {
            format!(" --config {}", path.display())
        }
    ))?;
    Ok(0)
}

/// Parses an address of the service. Blanks, and slashes at its end, are removed.
fn parse_address(text: &str) -> Result<String, String> {
    let address = text.trim().trim_end_matches('/');
    let rest = address.strip_prefix("https://").or_else(|| address.strip_prefix("http://"));
    match rest {
        Some(rest) if !rest.is_empty() && !rest.contains(char::is_whitespace) => Ok(address.to_owned()),
        _ => Err("expected an address such as https://feedback.example.com".to_owned()),
    }
}
