//! Lets the binary find the linked libduckdb without LD_LIBRARY_PATH. The binary looks for the library in its own
//! folder and in `../lib/studysync`, and nowhere else: it carries no path of the machine that built it.
//! So the library is put beside each binary.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
};

/// Where the library may be, seen from the folder of the binary.
const FROM_BINARY: [&str; 2] = ["", "/../lib/studysync"];

#[expect(clippy::disallowed_methods, reason = "a build script is told everything through the environment")]
fn main() {
    println!("cargo::rerun-if-env-changed=DUCKDB_LIB_DIR");
    if env::var_os("CARGO_FEATURE_BUNDLED").is_some() {
        return;
    }
    let Some(folder) = env::var_os("DUCKDB_LIB_DIR").map(PathBuf::from) else { return };
    let is_mac = env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "macos");
    let (origin, name) = if is_mac { ("@loader_path", "libduckdb.dylib") } else { ("$ORIGIN", "libduckdb.so") };
    for place in FROM_BINARY {
        println!("cargo::rustc-link-arg=-Wl,-rpath,{origin}{place}");
    }
    let library = folder.join(name);
    println!("cargo::rerun-if-changed={}", library.display());
    // target/PROFILE/build/studysync-HASH/out
    let out = env::var_os("OUT_DIR").map(PathBuf::from);
    let Some(programs) = out.as_deref().and_then(|out| out.ancestors().nth(3)) else { return };
    // Tests and benchmarks are in `deps`.
    for beside_binary in [programs.join(name), programs.join("deps").join(name)] {
        if let Err(error) = put_beside(&library, &beside_binary) {
            println!("cargo::warning=cannot create {}: {error}", beside_binary.display());
        }
    }
}

/// Copies the library, or names it once more where that is possible: it has 60 MB.
fn put_beside(library: &Path, place: &Path) -> io::Result<()> {
    match fs::remove_file(place) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
        _ => {}
    }
    fs::hard_link(library, place).or_else(|_| fs::copy(library, place).map(drop))
}
