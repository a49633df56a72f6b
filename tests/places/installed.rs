//! The program finds its library beside it, in any folder.

use std::{
    fs,
    path::{Path, PathBuf},
    process::Command,
};

/// Where the system would load the library of a program from; `None` if it needs none.
fn library_of(program: &Path) -> Option<PathBuf> {
    let told = Command::new("ldd").arg(program).env_remove("LD_LIBRARY_PATH").output().unwrap();
    let text = String::from_utf8(told.stdout).unwrap();
    let line = text.lines().find(|line| line.trim().starts_with("libduckdb"))?;
    let (_, place) = line.split_once("=> ").unwrap();
    Some(PathBuf::from(place.split(" (").next().unwrap()))
}

#[test]
#[cfg(target_os = "linux")]
fn the_program_finds_the_library_beside_it() {
    let built = Path::new(env!("CARGO_BIN_EXE_studysync"));
    let Some(linked) = library_of(built) else { return println!("SKIPPED: DuckDB is compiled in") };
    for (program, library) in [("studysync", "libduckdb.so"), ("bin/studysync", "lib/studysync/libduckdb.so")] {
        // Beside what was built: links need the same file system.
        let place = tempfile::tempdir_in(built.parent().unwrap()).unwrap();
        let [program, library] = [program, library].map(|name| place.path().join(name));
        for (from, to) in [(built, &program), (&linked, &library)] {
            fs::create_dir_all(to.parent().unwrap()).unwrap();
            fs::hard_link(from, to).or_else(|_| fs::copy(from, to).map(drop)).unwrap();
        }
        let found = library_of(&program).unwrap();
        assert_eq!(found.canonicalize().unwrap(), library.canonicalize().unwrap());
        let version =
            Command::new(&program).arg("--version").env_remove("LD_LIBRARY_PATH").current_dir("/").output().unwrap();
        assert!(version.status.success(), "{}", String::from_utf8_lossy(&version.stderr));
    }
}
