//! A restart of the sandbox, as on the next day of a tutorial.

use std::{
    io::{BufRead as _, BufReader, Read as _},
    process::{Child, Stdio},
};

use crate::harness::{KEY, Place};

/// Starts the sandbox of the program, and returns it with its address.
fn start(listen: &str, more: &[&str]) -> (Child, String) {
    let fixed = ["sandbox", "--listen", listen, "--responses", "300", "--days", "20", "--api-key", KEY];
    let place = Place::at("http://127.0.0.1:1");
    let mut command = place.bare(&[&fixed[..], more].concat());
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim().strip_prefix("listening on ").unwrap_or_else(|| panic!("{line}")).to_owned();
    (child, address)
}

/// Stops the sandbox, and returns what it wrote to stderr.
fn stop(mut child: Child) -> String {
    child.kill().unwrap();
    child.wait().unwrap();
    let mut said = String::new();
    child.stderr.take().unwrap().read_to_string(&mut said).unwrap();
    said
}

#[test]
fn a_restarted_sandbox_has_the_same_answers() {
    let (child, address) = start("127.0.0.1:0", &[]);
    let place = Place::at(&address);
    place.report(&["backfill", "--from", "25d"], 0);
    let said = stop(child);
    let (_, flag) = said.split_once("after a restart: studysync sandbox ... ").unwrap_or_else(|| panic!("{said}"));
    let flag: Vec<&str> = flag.split_whitespace().collect();
    assert_eq!((flag.len(), flag[0]), (2, "--history-end"), "{said}");
    let (child, again) = start(address.strip_prefix("http://").unwrap(), &flag);
    assert_eq!(again, address);
    let night = place.report(&["sync"], 0);
    for what in ["inserted", "vanished", "withheld"] {
        assert_eq!(night["streams"]["responses"][what], 0, "{what}: {night}");
    }
    place.run(&["verify", "--from", "20d"]).expect(0);
    assert_eq!(stop(child), "");
}
