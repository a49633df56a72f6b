//! Traces and metrics by OTLP, decoded by the classes that OpenTelemetry generates from its protocol. Only in builds
//! with the feature `otlp`.

use std::{
    collections::BTreeMap,
    io::Write as _,
    process::{Command, Stdio},
};

use serde_json::Value;

use super::{Answer, Receiver, python_packages};
use crate::harness::{Done, Place, Service, small};

/// Decodes hex lines, each with the path of its request, into JSON lines.
const DECODE: &str = "
import json, sys
from google.protobuf.json_format import MessageToDict
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
kinds = {'/v1/traces': ExportTraceServiceRequest, '/v1/metrics': ExportMetricsServiceRequest}
for line in sys.stdin:
    path, body = line.split(' ')
    request = kinds[path]()
    request.ParseFromString(bytes.fromhex(body.strip()))
    print(json.dumps(MessageToDict(request)))
";

fn decoded(posted: &[(String, Vec<u8>)]) -> Option<Vec<Value>> {
    let packages = python_packages()?;
    let mut python = Command::new("python3")
        .args(["-c", DECODE])
        .env("PYTHONPATH", packages)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut input = python.stdin.take().unwrap();
    for (path, body) in posted {
        let hex: String = body.iter().map(|byte| format!("{byte:02x}")).collect();
        writeln!(input, "{path} {hex}").unwrap();
    }
    drop(input);
    let output = python.wait_with_output().unwrap();
    assert!(output.status.success(), "it cannot be decoded");
    Some(String::from_utf8(output.stdout).unwrap().lines().map(|line| serde_json::from_str(line).unwrap()).collect())
}

fn sync(place: &Place, endpoint: &str) -> Done {
    let mut command = place.command(&["sync", "--json"]);
    Done::from(command.env("OTEL_EXPORTER_OTLP_ENDPOINT", endpoint).output().unwrap())
}

fn endpoint(receiver: &Receiver) -> String {
    receiver.url().rsplit_once('/').unwrap().0.to_owned()
}

/// Collects all values of a key, at any depth.
fn all<'a>(value: &'a Value, key: &str, found: &mut Vec<&'a Value>) {
    match value {
        Value::Array(values) => values.iter().for_each(|value| all(value, key, found)),
        Value::Object(fields) => {
            for (name, value) in fields {
                if name == key {
                    found.extend(value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice));
                }
                all(value, key, found);
            }
        }
        _ => {}
    }
}

#[test]
fn a_collector_receives_runs_windows_pages_and_commits() {
    let service = Service::start(small(300, 5));
    let receiver = Receiver::start();
    let place = Place::new(&service).without_parquet();
    let report = sync(&place, &endpoint(&receiver)).expect(0).json();
    let posted = receiver.take_raw();
    assert!(
        posted.iter().any(|(path, _)| path == "/v1/traces") && posted.iter().any(|(path, _)| path == "/v1/metrics")
    );
    let Some(decoded) = decoded(&posted) else { return };
    let mut spans = Vec::new();
    decoded.iter().for_each(|request| all(request, "spans", &mut spans));
    let id = |span: &Value, name: &str| span[name].as_str().unwrap_or_default().to_owned();
    let names: BTreeMap<String, String> = spans.iter().map(|span| (id(span, "spanId"), id(span, "name"))).collect();
    let mut seen: BTreeMap<(String, String), usize> = BTreeMap::new();
    for span in &spans {
        let parent = names.get(&id(span, "parentSpanId")).cloned().unwrap_or_default();
        *seen.entry((parent, id(span, "name"))).or_default() += 1;
    }
    let count = |parent: &str, name: &str| seen.get(&(parent.to_owned(), name.to_owned())).copied().unwrap_or(0);
    assert_eq!(count("", "run"), 1, "{seen:?}");
    assert!(count("run", "window") >= 3 && count("window", "page") >= 3 && count("run", "commit") >= 2, "{seen:?}");
    assert_eq!(seen.len(), 4, "nothing stands elsewhere: {seen:?}");
    assert!(decoded.iter().any(|request| request.to_string().contains(report["run_id"].as_str().unwrap())));
    // The metrics equal those of the textfile.
    let mut metrics = Vec::new();
    decoded.iter().for_each(|request| all(request, "metrics", &mut metrics));
    let rows = metrics.iter().find(|metric| metric["name"] == "studysync_run_rows").unwrap();
    let mut points = Vec::new();
    all(rows, "dataPoints", &mut points);
    let inserted = points.iter().find(|point| {
        let attributes = point["attributes"].to_string();
        attributes.contains("\"responses\"") && attributes.contains("\"inserted\"")
    });
    assert_eq!(inserted.unwrap()["asDouble"].as_f64(), report["streams"]["responses"]["inserted"].as_f64());
    for point in points {
        let attributes = point["attributes"].to_string();
        assert!(attributes.contains("\"environment\"") && attributes.contains("\"service_host\""), "{attributes}");
    }
    assert!(decoded.iter().all(|request| request.to_string().contains("\"studysync\"")), "the service's name");
}

#[test]
fn a_hung_or_missing_collector_changes_no_run() {
    let service = Service::start(small(60, 3));
    let place = Place::new(&service).without_parquet();
    let receiver = Receiver::start();
    let gone = endpoint(&receiver);
    receiver.answers(Answer::Nothing);
    let done = sync(&place, &gone).expect(0);
    assert!(done.stderr.contains("could be sent to the collector"), "{}", done.stderr);
    assert!(!receiver.take_raw().is_empty());
    drop(receiver);
    sync(&place, &gone).expect(0);
    // Without the setting, the program does not use a collector.
    assert!(!place.run(&["sync"]).expect(0).stderr.contains("collector"));
}
