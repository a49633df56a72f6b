//! The program finds its library in its own folder, wherever that is, and the configuration of the Debian package
//! works.

use std::{
    fs,
    os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown},
    path::{Path, PathBuf},
    process::Command,
};

use crate::harness::{Done, KEY, KEY_VARIABLE, Place, Service, small};

/// Returns the path from which the system would load the library of a program; `None` if it needs none.
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
        // The folder is next to the build output, because hard links need the same file system.
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

/// The configuration of the Debian package, with its folders below this place.
fn debian_config(place: &Place, base_url: &str) -> Option<String> {
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("scripts/dist/debian_config.py");
    let printed = Command::new("python3").arg(script).arg(env!("CARGO_BIN_EXE_studysync")).output();
    let Ok(printed) = printed else {
        println!("SKIPPED: python3 is missing");
        return None;
    };
    assert!(printed.status.success(), "{}", String::from_utf8_lossy(&printed.stderr));
    let text = String::from_utf8(printed.stdout).unwrap();
    let address = text.lines().find(|line| line.starts_with("base_url = ")).unwrap();
    let text = text.replace(address, &format!("base_url = \"{base_url}\""));
    let below = |path: &str| format!("\"{}", place.path(path).display());
    Some(text.replace("\"/var/lib/studysync", &below("data")).replace("\"/etc/studysync", &below("etc")))
}

#[test]
fn p9_the_debian_config_works_with_the_timer_alone() {
    let service = Service::start(small(60, 3));
    let place = Place::new(&service);
    let Some(config) = debian_config(&place, &service.base_url()) else { return };
    // The package's postinst makes the folders like this, with the group of the readers.
    const READERS: u32 = 65_533;
    let warehouse = place.path("data/warehouse");
    for folder in ["etc", "data/warehouse"] {
        fs::create_dir_all(place.path(folder)).unwrap();
    }
    let is_root = rustix::process::geteuid().is_root();
    if is_root {
        chown(&warehouse, None, Some(READERS)).unwrap();
    }
    fs::set_permissions(&warehouse, fs::Permissions::from_mode(0o2750)).unwrap();
    fs::write(place.path("etc/key"), KEY).unwrap();
    fs::write(place.path("etc/studysync.toml"), config).unwrap();
    let run = |arguments: &[&str]| {
        let mut command = place.bare(&["--config", "etc/studysync.toml"]);
        command.args(arguments).env_remove(KEY_VARIABLE);
        Done::from(command.output().unwrap())
    };
    let checked = run(&["check"]);
    assert_eq!(checked.code, 0, "{}{}", checked.stdout, checked.stderr);
    run(&["sync"]).expect(0);
    let file = fs::metadata(warehouse.join("warehouse.duckdb")).unwrap();
    assert_eq!(file.mode() & 0o777, 0o640, "the readers' group reads the warehouse");
    assert!(!is_root || file.gid() == READERS, "{}", file.gid());
    let below = place.files("data/state");
    assert!(!below.is_empty());
    for path in below {
        assert_eq!(fs::metadata(&path).unwrap().mode() & 0o077, 0, "{}", path.display());
    }
}
