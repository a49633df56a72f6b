//! Expands `~` in paths, as a shell does. Other forms that a shell would expand are errors. Without the error, the
//! program would create a folder with a name such as `$HOME`.

use std::path::{Component, Path, PathBuf};

use super::environment::variable;

/// Returns the path with a leading `~` replaced by the home folder.
///
/// # Errors
/// A path that is empty, begins with another user's home or a variable, or is a URL.
pub(super) fn expand_tilde(path: PathBuf) -> Result<PathBuf, String> {
    expand_tilde_with(path, || variable("HOME").filter(|home| !home.is_empty()).map(PathBuf::from))
}

/// Expands a leading `~`, as [`expand_tilde`]. `home` returns the home folder; `None` if it is unknown.
fn expand_tilde_with(path: PathBuf, home: impl FnOnce() -> Option<PathBuf>) -> Result<PathBuf, String> {
    let shown = path.display();
    if path.as_os_str().is_empty() {
        return Err("the path is empty".to_owned());
    }
    let mut components = path.components();
    let Some(Component::Normal(first)) = components.next() else { return Ok(path) };
    let (first, rest) = (first.to_string_lossy(), components.as_path());
    let has_rest = rest != Path::new("");
    if first == "~" {
        let home = home()
            .ok_or_else(|| format!("'{shown}': ~ cannot be expanded, since HOME is not set: write the full path"))?;
        return Ok(home.join(rest));
    }
    if first.starts_with('~') && has_rest {
        return Err(format!("'{shown}': only ~/ is expanded, not the home of another user: write the full path"));
    }
    let is_name =
        |name: &str| name.starts_with(|letter: char| letter.is_ascii_alphabetic() || matches!(letter, '_' | '{'));
    let is_variable = first.strip_prefix('$').is_some_and(is_name)
        || (first.starts_with('%') && first.ends_with('%') && first.len() > 2);
    if is_variable {
        return Err(format!("'{shown}': variables are not expanded: write the path itself, or ~/ for your home"));
    }
    let is_scheme = |name: &str| name.len() > 2 && name.ends_with(':');
    if is_scheme(&first) && path.to_string_lossy().contains("://") {
        return Err(format!("'{shown}' is an address; this version writes to files and folders only"));
    }
    Ok(path)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn path(text: &str) -> Result<String, String> {
        expand_tilde_with(PathBuf::from(text), || Some("/home/me".into())).map(|path| path.display().to_string())
    }

    #[test]
    fn only_the_tilde_is_expanded() {
        for (written, meant) in [
            ("~", "/home/me/"),
            ("~/w.duckdb", "/home/me/w.duckdb"),
            ("~//a/../b", "/home/me/a/../b"),
            ("w.duckdb", "w.duckdb"),
            ("./~/w", "./~/w"),
            ("a/~/w", "a/~/w"),
            ("~backup.csv", "~backup.csv"),
            ("/$x", "/$x"),
            ("$5.csv", "$5.csv"),
            ("C:/x", "C:/x"),
        ] {
            assert_eq!(path(written).as_deref(), Ok(meant), "{written}");
        }
        for (written, expected) in [
            ("", "empty"),
            ("~bob/w", "another user"),
            ("$HOME/w", "variables"),
            ("${HOME}/w", "variables"),
            ("%USERPROFILE%/w", "variables"),
            ("s3://bucket/x", "files and folders only"),
            ("file:///x", "files and folders only"),
        ] {
            let problem = path(written).unwrap_err();
            assert!(problem.contains(expected), "{written}: {problem}");
        }
        assert!(expand_tilde_with("~/x".into(), || None).unwrap_err().contains("HOME is not set"));
    }
}
