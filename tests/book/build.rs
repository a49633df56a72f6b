//! mdBook builds the book without a warning, if `scripts/mdbook.sh` could install mdBook.

use std::{path::Path, process::Command};

use super::repository;

#[test]
fn the_book_builds_without_warnings() {
    let target = Path::new(env!("CARGO_TARGET_TMPDIR")).parent().unwrap();
    let program = target.join("mdbook/bin/mdbook");
    if !program.is_file() {
        return println!("SKIPPED: {} is missing (scripts/mdbook.sh installs it)", program.display());
    }
    let site = tempfile::tempdir().unwrap();
    let mut build = Command::new(program);
    build.arg("build").arg(repository().join("docs")).arg("--dest-dir").arg(site.path());
    let output = build.env_remove("RUST_LOG").output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(output.status.success(), "{said}");
    assert!(!said.contains("WARN") && !said.contains("ERROR"), "{said}");
    for page in ["introduction.html", "guide/first-sync.html", "reference/commands.html"] {
        assert!(site.path().join(page).is_file(), "{page}: {said}");
    }
}
