//! Follows tutorial pages from top to bottom. Bash runs each `sh` block with the real program, in one folder, against
//! the sandbox. Each `toml` block changes the configuration in the folder.

use std::{
    fs,
    io::{BufRead, BufReader, Read, Write},
    net::TcpStream,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
};

use toml::Table;

use super::{Block, page, repository};
use crate::harness::Done;

/// The content of the folder before a page begins.
#[derive(Clone, Copy, PartialEq)]
enum Before {
    /// An empty folder; the page begins with `init`.
    Nothing,
    /// A folder with a configuration.
    Configured,
    /// A folder with a configuration and a DuckDB file with all answers since 2026.
    Filled,
}

/// The service for pages that do not start one.
const SERVICE: &str = "studysync sandbox --responses 1500 --days 40 --media";
const SERVICE_ADDRESS: &str = "http://127.0.0.1:8787";
const SERVE_ADDRESS: &str = "http://127.0.0.1:8788";

/// A server that the page starts. It stops at the end of the page.
struct Server(Child);

impl Drop for Server {
    fn drop(&mut self) {
        self.0.kill().ok();
        self.0.wait().ok();
    }
}

/// One walk through a page.
struct Walk {
    root: tempfile::TempDir,
    configuration: Table,
    /// The exported variables, as shell lines.
    exports: String,
    /// Addresses on the page, and the real addresses of the servers.
    addresses: Vec<(&'static str, String)>,
    servers: Vec<Server>,
}

impl Walk {
    fn begin(before: Before) -> Walk {
        let root = tempfile::Builder::new().prefix("studysync-book-").tempdir().unwrap();
        fs::create_dir(root.path().join("work")).unwrap();
        let (exports, configuration) = (String::new(), Table::new());
        let mut walk = Walk { root, configuration, exports, addresses: Vec::new(), servers: Vec::new() };
        std::os::unix::fs::symlink(repository().join("examples"), walk.folder().join("examples")).unwrap();
        if before != Before::Nothing {
            walk.exports.push_str("export STUDYSYNC_API_KEY=sandbox-key\n");
            walk.configure(&format!(
                "[service]\nbase_url = \"{SERVICE_ADDRESS}\"\n[warehouse]\nduckdb = \"warehouse.duckdb\"\n"
            ));
        }
        walk
    }

    fn folder(&self) -> PathBuf {
        self.root.path().join("work")
    }

    /// Replaces the tables of the configuration that the block also has.
    fn configure(&mut self, block: &str) {
        let block: Table = block.parse().unwrap();
        self.configuration.extend(block);
        let address = self.real(SERVICE_ADDRESS);
        if let Some(service) = self.configuration.get_mut("service") {
            service.as_table_mut().unwrap().insert("base_url".into(), address.into());
        }
        fs::write(self.folder().join("studysync.toml"), self.configuration.to_string()).unwrap();
    }

    /// Replaces the addresses in a text with those of this walk.
    fn real(&self, text: &str) -> String {
        self.addresses.iter().fold(text.to_owned(), |text, (written, real)| text.replace(written, real))
    }

    #[expect(clippy::disallowed_methods, reason = "the shell finds its own programs as well")]
    fn bash(&self, script: &str) -> Command {
        let program = Path::new(env!("CARGO_BIN_EXE_studysync")).parent().unwrap();
        let path = format!("{}:{}", program.display(), std::env::var("PATH").unwrap_or_default());
        let mut bash = Command::new("bash");
        bash.args(["-euo", "pipefail", "-c", &format!("{}{script}", self.exports)]).current_dir(self.folder());
        for (name, _) in std::env::vars_os() {
            if name.to_string_lossy().starts_with("STUDYSYNC_") {
                bash.env_remove(name);
            }
        }
        bash.env("PATH", path).env("HOME", self.root.path()).stdin(Stdio::null());
        bash
    }

    /// Starts a command that listens, on a free port.
    fn start(&mut self, command: &str) {
        let mut bash = self.bash(&format!("exec {} --listen 127.0.0.1:0", command.trim()));
        let mut process = bash.stdout(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let mut line = String::new();
        BufReader::new(process.stdout.take().unwrap()).read_line(&mut line).unwrap();
        let address = line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("{command}: {line}"));
        let written = if command.contains("sandbox") { SERVICE_ADDRESS } else { SERVE_ADDRESS };
        self.addresses.push((written, address.to_owned()));
        self.servers.push(Server(process));
    }

    /// Advances the service's clock by an hour, with new answers and edits.
    fn let_time_pass(&self) {
        self.post("/_sandbox/clock", r#"{"advance_ms": 3600000}"#);
        self.post("/_sandbox/changes", r#"{"new_answers": 40, "edits": 5, "within_ms": 86400000}"#);
    }

    fn post(&self, path: &str, body: &str) {
        let address = self.real(SERVICE_ADDRESS);
        let address = address.trim_start_matches("http://");
        let mut stream = TcpStream::connect(address).unwrap();
        let head = format!(
            "POST {path} HTTP/1.1\r\nHost: {address}\r\nContent-Type: application/json\r\nConnection: close\r\n"
        );
        write!(stream, "{head}Content-Length: {}\r\n\r\n{body}", body.len()).unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).unwrap();
        assert!(answer.starts_with("HTTP/1.1 200"), "{path}: {answer}");
    }

    fn run(&mut self, script: &str) -> Done {
        Done::from(self.bash(&self.real(script)).output().unwrap())
    }

    fn follow(&mut self, block: &Block) {
        match block.language.as_str() {
            "toml" => self.configure(&block.text),
            "sh" if block.is_run => {
                assert!(!block.text.contains("sudo "), "{}: a block for root is marked `not run`", block.place);
                let (exports, rest): (Vec<_>, Vec<_>) =
                    block.text.lines().partition(|line| line.starts_with("export "));
                exports.iter().for_each(|line| self.exports.push_str(&format!("{line}\n")));
                let is_server =
                    |line: &str| line.starts_with("studysync sandbox") || line.starts_with("studysync serve");
                match rest.as_slice() {
                    [only] if is_server(only) => self.start(only),
                    _ => {
                        let done = self.run(&rest.join("\n"));
                        let Done { code, stdout, stderr } = &done;
                        assert_eq!(*code, block.exit_code, "{}\n{}\n{stdout}\n{stderr}", block.place, block.text);
                    }
                }
            }
            _ => {}
        }
    }
}

/// Follows a page.
fn follow(name: &str, before: Before) {
    follow_and(name, before, |_| ());
}

/// Follows a page; `between` runs before each block.
fn follow_and(name: &str, before: Before, between: fn(&Walk)) {
    let blocks = page(name).blocks();
    let mut walk = Walk::begin(before);
    let starts_service = |block: &Block| block.text.starts_with("studysync sandbox");
    let own_service = blocks.iter().position(starts_service);
    walk.start(own_service.map_or(SERVICE, |at| blocks[at].text.as_str()));
    if before != Before::Nothing {
        walk.configure("");
    }
    if before == Before::Filled {
        let done = walk.run("studysync backfill --from 2026-01-01");
        assert_eq!(done.code, 0, "{}", done.stderr);
    }
    let steps: Vec<_> = blocks.iter().enumerate().filter(|(at, _)| Some(*at) != own_service).collect();
    assert!(steps.iter().any(|(_, block)| block.language == "sh" && block.is_run), "{name} has nothing to run");
    for (_, block) in steps {
        between(&walk);
        walk.follow(block);
    }
}

#[test]
fn the_first_sync_is_as_the_guide_says() {
    follow("docs/guide/first-sync.md", Before::Nothing);
}

#[test]
fn a_backfill_is_as_the_guide_says() {
    follow("docs/guide/backfill.md", Before::Configured);
}

#[test]
fn nights_changes_and_proofs_are_as_the_guide_says() {
    follow("docs/guide/nightly.md", Before::Filled);
    follow("docs/guide/changes.md", Before::Filled);
    follow("docs/guide/proof.md", Before::Filled);
}

#[test]
fn people_and_recordings_are_as_the_guide_says() {
    follow("docs/guide/people.md", Before::Filled);
    follow("docs/guide/recordings.md", Before::Configured);
    follow("docs/guide/service.md", Before::Configured);
}

#[test]
fn webhooks_are_as_the_guide_says() {
    if Command::new("curl").arg("--version").output().is_err() {
        return println!("SKIPPED: there is no curl");
    }
    follow("docs/guide/webhooks.md", Before::Filled);
}

#[test]
fn a_warehouse_is_added_and_upgraded_as_written() {
    follow("docs/howto/add-warehouse.md", Before::Filled);
    follow("docs/howto/upgrade.md", Before::Filled);
    follow("docs/howto/change-key.md", Before::Configured);
}

#[test]
fn what_is_lost_comes_back_as_written() {
    follow_and("docs/howto/restore.md", Before::Filled, Walk::let_time_pass);
    follow_and("docs/howto/restart.md", Before::Filled, Walk::let_time_pass);
}
