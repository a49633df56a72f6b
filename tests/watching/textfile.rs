//! `[metrics] textfile`: always complete, readable by every user, and written also after a run that could not start.

use std::{os::unix::fs::PermissionsExt as _, process::Command};

use super::{metric, place_for, python_packages, with_wrong_key};
use crate::harness::{KEY_VARIABLE, Place, Service, small};

/// Parses a text with Prometheus' own client library, and prints each sample.
const PARSE: &str = "
import sys
from prometheus_client.parser import text_string_to_metric_families
for family in text_string_to_metric_families(sys.stdin.read()):
    assert family.type in ('counter', 'gauge'), family
    assert family.documentation and family.samples, family
    for sample in family.samples:
        print(sample.name, sorted(sample.labels.items()), float(sample.value))
";

/// Returns the samples that the library reads; `None` if it is not installed.
pub fn parsed(text: &str) -> Option<String> {
    use std::io::Write as _;
    let packages = python_packages()?;
    let mut python = Command::new("python3")
        .args(["-c", PARSE])
        .env("PYTHONPATH", packages)
        .stdin(std::process::Stdio::piped())
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    python.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success(), "it cannot be parsed: {text}");
    Some(String::from_utf8(output.stdout).unwrap())
}

fn text(place: &Place) -> String {
    std::fs::read_to_string(place.path("studysync.prom")).unwrap()
}

#[test]
fn every_run_writes_its_metrics() {
    let service = Service::start(small(120, 4));
    let place = place_for(&service, "");
    let report = place.report(&["sync"], 0);
    let mode = std::fs::metadata(place.path("studysync.prom")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o644, "node_exporter is another user");
    assert_eq!((metric(&place, "healthy"), metric(&place, "last_run_exit_code")), (Some(1.0), Some(0.0)));
    let rows = &report["streams"]["responses"]["inserted"];
    assert_eq!(metric(&place, "run_rows{stream=\"responses\",fate=\"inserted\"}"), rows.as_f64());
    let requests = &report["requests"]["by_status"]["200"];
    assert_eq!(metric(&place, "run_requests{status=\"200\"}"), requests.as_f64());
    let success = metric(&place, "last_success_timestamp_seconds{command=\"sync\"}");
    assert_eq!(success, metric(&place, "last_run_timestamp_seconds"));
    if let Some(parsed) = parsed(&text(&place)) {
        let host = service.base_url().replace("http://", "");
        let labels = format!(
            "[('environment', 'default'), ('fate', 'inserted'), ('service_host', '{host}'), ('stream', 'responses')]"
        );
        let line = format!("studysync_run_rows {labels} {rows}.0\n");
        assert!(parsed.contains(&line), "{line} in {parsed}");
        let labels = format!("[('environment', 'default'), ('reason', 'key_refused'), ('service_host', '{host}')]");
        assert!(parsed.contains(&format!("studysync_health_reason {labels} 0.0")), "{parsed}");
    }
    // A failure does not change the time of the last success.
    let place = with_wrong_key(place);
    place.run(&["sync"]).expect(4);
    assert_eq!(metric(&place, "last_success_timestamp_seconds{command=\"sync\"}"), success);
    assert_eq!((metric(&place, "healthy"), metric(&place, "last_run_exit_code")), (Some(0.0), Some(4.0)));
    assert_eq!(metric(&place, "health_reason{reason=\"key_refused\"}"), Some(1.0));
    let parts = place.files(".").into_iter().filter(|path| path.extension().is_some_and(|end| end == "part"));
    assert_eq!(parts.count(), 0, "nothing is left beside it");
}

#[test]
fn a_run_that_cannot_start_also_writes_metrics() {
    let service = Service::start(small(60, 3));
    let place = place_for(&service, "").with_env(KEY_VARIABLE, "");
    place.run(&["sync"]).expect(2);
    assert_eq!((metric(&place, "healthy"), metric(&place, "last_run_exit_code")), (Some(0.0), Some(2.0)));
    assert_eq!(metric(&place, "health_reason{reason=\"configuration\"}"), Some(1.0));
    assert!(!place.state().exists(), "it made no state file");
    parsed(&text(&place));
}

#[test]
fn an_unwritable_textfile_changes_no_run() {
    let service = Service::start(small(60, 3));
    let place = place_for(&service, "").with_config("[metrics]\ntextfile = \"no/such/folder/studysync.prom\"\n");
    let done = place.run(&["sync"]).expect(0);
    assert!(done.stderr.contains("cannot write the metrics"), "{}", done.stderr);
}

#[test]
fn one_parser_reads_the_textfile_and_the_serve_page() {
    let service = Service::start(small(60, 3));
    let serve = "[serve]\nlisten = \"127.0.0.1:0\"\nschedule = \"off\"\nwebhook = \"off\"\n";
    let place = place_for(&service, serve);
    place.run(&["sync"]).expect(0);
    let serving = crate::serve::Serving::start(&place);
    let text = serving.get("/metrics").1;
    if let Some(parsed) = parsed(&text) {
        for metric in studysync::metrics::ALL {
            // The rate is unknown until a run has learned it, and this warehouse is no catalog.
            let absent = ["learned_requests_per_second", "catalog_snapshots", "maintenance_due"];
            let is_there = parsed.lines().any(|line| line.starts_with(&format!("studysync_{} ", metric.name)));
            assert_eq!(is_there, !absent.contains(&metric.name), "{}", metric.name);
        }
    }
    serving.stop();
}

#[test]
fn two_installations_on_one_machine_share_no_series() {
    let (service, other) = (Service::start(small(60, 3)), Service::start(small(60, 3)));
    let of = |service: &Service, environment: &str| {
        let place = place_for(service, "").with_env("STUDYSYNC_SERVICE_ENVIRONMENT", environment);
        place.run(&["sync"]).expect(0);
        text(&place)
    };
    // Two environments of one service, one of them with a name that must be escaped, and another service.
    let texts = [of(&service, "default"), of(&service, "a \"b\" \\ c"), of(&other, "default")];
    let mut series = std::collections::BTreeSet::new();
    for text in &texts {
        parsed(text);
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let (name, _) = line.rsplit_once(' ').unwrap();
            assert!(name.contains("environment=\"") && name.contains("service_host=\"127.0.0.1:"), "{line}");
            assert!(series.insert(name.to_owned()), "{name} is in two files");
        }
    }
    assert!(texts[1].contains("environment=\"a \\\"b\\\" \\\\ c\""), "{}", texts[1]);
}
