//! Lets the binary find the linked libduckdb without LD_LIBRARY_PATH: its folder goes into the run path.

#[expect(clippy::disallowed_methods, reason = "a build script is told everything through the environment")]
fn main() {
    println!("cargo::rerun-if-env-changed=DUCKDB_LIB_DIR");
    if std::env::var_os("CARGO_FEATURE_BUNDLED").is_some() {
        return;
    }
    if let Some(dir) = std::env::var_os("DUCKDB_LIB_DIR") {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{}", dir.display());
    }
}
