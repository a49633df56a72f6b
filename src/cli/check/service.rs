//! Checks of the service and the network, and of what watches runs and starts them: metrics, notifications, `serve`.

use std::{
    fs::File,
    io::{self, Read as _},
    net::TcpListener,
    os::unix::fs::PermissionsExt as _,
    path::{Path, PathBuf},
};

use crate::{
    clock,
    config::{Settings, network_variables, program_folders},
    notify::{TestResult, send_test},
    pipeline::{self, ClockComparison, PipelineError, short_lived_source, store_rate_limits},
    serve::{ConnectionLimit, check_schedule, check_status_page},
    source::{SettingsError, Source, SourceError},
};

use super::{
    super::{CommandError, Context, report},
    storage::Finding,
    storage::writable,
};

/// Rows of the sample that is compared with the service's clock.
const CLOCK_ROWS: u32 = 10;
/// The largest difference of the clocks that is not shown, in milliseconds.
const SKEW_MS_MAX: i64 = 60_000;

/// Returns findings about the service, the key, the clocks, and each list that does not answer.
pub(super) async fn findings(settings: &Settings, context: &Context) -> Vec<Finding> {
    let source = match short_lived_source(settings, None) {
        Ok(source) => source,
        // The finding about the proxy says so.
        Err(PipelineError::Source(SourceError::Settings(SettingsError::UnusableProxy { .. }))) => return Vec::new(),
        Err(error) => return vec![Finding::error("service", error)],
    };
    let base_url = settings.service.base_url.as_deref().unwrap_or_default();
    context.message(&format!("requesting {base_url} ...\n"));
    let findings = probe(&source, settings, base_url).await;
    store_rate_limits(&source, settings);
    findings
}

/// Sends the requests that check the service, the key, the clocks and each configured list.
async fn probe(source: &Source, settings: &Settings, base_url: &str) -> Vec<Finding> {
    let probe = match source.probe().await {
        Err(error @ SourceError::KeyRefused { .. }) => {
            return vec![Finding::ok("service", "it answers"), Finding::error("key", error)];
        }
        Err(error) => return vec![Finding::error("service", error)],
        Ok(probe) => probe,
    };
    let mut findings = vec![
        Finding::ok("service", format!("{base_url} answers in {} ms", probe.latency_ms)),
        Finding::ok("key", "accepted"),
        clocks(source, settings, probe.service_now_ms).await,
    ];
    let lists = settings.streams.iter().map(|stream| stream.stream).filter(|list| *list != probe.list);
    for list in lists {
        match source.try_list(list).await {
            Err(error) => findings.push(Finding::error(list.name(), error)),
            Ok(()) if source.is_taken_as_empty(list) => findings.push(Finding::ok(
                list.name(),
                "every request is answered with 404, so the list counts as empty; if it should not be, ask whether the key may read it",
            )),
            Ok(()) => {}
        }
    }
    findings
}

/// Compares the clocks of the service and of this machine. A difference is harmless for windows, which use the
/// service's clock, but it may surprise a reader of logs. Only a clock that is days off is a failure.
async fn clocks(source: &Source, settings: &Settings, service_now_ms: Option<i64>) -> Finding {
    let list = settings.streams.iter().find(|stream| stream.stream.is_windowed());
    let sample = list.map(|list| pipeline::ClockSample { list: list.stream, page_rows: CLOCK_ROWS });
    let Some(service_ms) = service_now_ms else {
        return Finding::ok("clock", "the service does not send its time; this machine's is used");
    };
    let comparison = pipeline::compare_clocks(source, sample, service_ms, clock::now_ms(), None).await;
    if let Ok(ClockComparison::Wrong(mismatch)) = comparison {
        let hint = "correct the wrong clock: rows that are newer than the service's clock are not read";
        return Finding::problem("clock", mismatch.to_string(), hint, 3);
    }
    let skew_ms = service_ms - clock::now_ms();
    if skew_ms.abs() <= SKEW_MS_MAX {
        return Finding::ok("clock", "both agree within a minute");
    }
    let minutes = skew_ms.abs() as f64 / 60_000.0;
    let relation = if skew_ms > 0 { "ahead of" } else { "behind" };
    Finding::ok("clock", format!("the service is {minutes:.1} min {relation} this machine; windows go by its clock"))
}

const CERTIFICATE_BEGIN: &str = "-----BEGIN CERTIFICATE-----";
const FILE_BYTES_MAX: u64 = 64 << 20;

/// Returns a finding for the proxy and one for the certificates, if variables set them.
pub(super) fn network(settings: &Settings) -> Vec<Finding> {
    let base_url = settings.service.base_url.as_deref().unwrap_or_default();
    let proxy = match pipeline::proxies() {
        Ok(proxies) => proxies.describe(base_url).map(|way| Finding::ok("proxy", way)),
        Err(error) => Some(Finding::error("proxy", error)),
    };
    let certificates = network_variables().certificates.map(|path| certificates_in(&path));
    proxy.into_iter().chain(certificates).collect()
}

/// Checks that the file of trusted authorities can be read and has certificates.
fn certificates_in(path: &Path) -> Finding {
    let mut text = String::new();
    let read = File::open(path).and_then(|file| file.take(FILE_BYTES_MAX).read_to_string(&mut text));
    let shown = path.display();
    let problem = |found: String| {
        let hint =
            "set SSL_CERT_FILE to a PEM file with all trusted authorities, or unset it to trust those of this machine";
        Finding::problem("certs", found, hint, 2)
    };
    match (read, text.matches(CERTIFICATE_BEGIN).count()) {
        (Err(error), _) => problem(format!("{shown} cannot be read: {error}")),
        (Ok(_), 0) => problem(format!("{shown} has no certificate")),
        (Ok(_), count) => Finding::ok("certs", format!("only the {count} authorities of {shown} are trusted")),
    }
}

/// Returns a finding for the metrics file and one for the notification command, if they are configured.
pub(super) fn watching(settings: &Settings) -> Vec<Finding> {
    let textfile = settings.metrics.textfile.as_deref().map(textfile);
    let command = settings.notify.command.first().map(|program| command(program));
    textfile.into_iter().chain(command).collect()
}

/// Sends a test message to the command and the webhook of `[notify]`. Returns a finding for each.
pub(super) async fn send_tests(settings: &Settings) -> Vec<Finding> {
    if !settings.notify.is_enabled() {
        let error = CommandError::Usage("[notify] names neither a command nor a webhook".to_owned());
        return vec![Finding::error("notify", error)];
    }
    let finding = |test: TestResult| match test.result {
        Ok(()) => Finding::ok("notify", format!("the {} accepted a test message", test.channel.name())),
        Err(problem) => Finding::error("notify", CommandError::Refused(problem)),
    };
    send_test(settings, clock::now_ms()).await.into_iter().map(finding).collect()
}

/// Checks that the metrics file can be written.
fn textfile(path: &Path) -> Finding {
    let folder = path.parent().filter(|folder| *folder != Path::new("")).unwrap_or(Path::new("."));
    if !folder.is_dir() {
        let found = format!("{} cannot be written: its folder does not exist", path.display());
        let hint = format!("create the folder {}, or correct textfile under [metrics]", folder.display());
        return Finding::problem("metrics", found, hint, 1);
    }
    writable("metrics", &[folder.to_owned()], format!("{} can be written", path.display()))
}

fn command(program: &str) -> Finding {
    match executable(program) {
        Some(path) => Finding::ok("notify", format!("runs {}; --notify tests it", path.display())),
        None => {
            let hint =
                "correct command under [notify]: a list with the program first, and each argument as its own text";
            Finding::problem("notify", format!("there is no executable program '{program}'"), hint, 1)
        }
    }
}

/// Returns the executable file of a program. `program` is a path, or a name that is searched in `PATH`. `None` if there
/// is no such file.
fn executable(program: &str) -> Option<PathBuf> {
    let is_executable =
        |path: &PathBuf| path.metadata().is_ok_and(|file| file.is_file() && file.permissions().mode() & 0o111 != 0);
    if program.contains('/') {
        return Some(PathBuf::from(program)).filter(is_executable);
    }
    program_folders().into_iter().map(|folder| folder.join(program)).find(is_executable)
}

/// Returns a finding about the limit of open files, if it is lower than `serve` needs for all its connections.
pub(super) fn open_files() -> Option<Finding> {
    let limit = ConnectionLimit::of_process();
    let files = limit.open_files.filter(|_| limit.is_reduced())?;
    let hint = "raise it: LimitNOFILE= in a unit of systemd, `ulimit -n` in a shell";
    let found = format!(
        "this process may open only {files} files: with such a limit, serve takes {} connections at the same time",
        limit.connections
    );
    Some(match limit.is_too_low() {
        true => Finding::problem("open files", format!("{found}, and a run may lack files"), hint, 1),
        false => Finding { what_to_do: Some(hint.to_owned()), ..Finding::ok("open files", found) },
    })
}

/// Returns a finding about the schedule, the secret of webhooks, the status page and the address of `serve`.
pub(super) fn serve(settings: &Settings) -> Finding {
    let serve = &settings.serve;
    if let Err(error) = check_schedule(serve) {
        return Finding::error("serve", error);
    }
    if let Err(error) = report::check_flags(settings) {
        return Finding::error("serve", error);
    }
    let secret = serve.webhook.as_ref().map_or(Ok(()), |_| serve.token().map(drop));
    match secret {
        Err(_) if serve.token_source.is_unset_default() => {
            return Finding::ok("serve", "not set up: it would need the secret of webhooks, or webhook = \"off\"");
        }
        Err(error) => return Finding::error("serve", error),
        Ok(()) => {}
    }
    if let Err(error) = check_status_page(serve) {
        return Finding::error("serve", error);
    }
    match TcpListener::bind(serve.listen) {
        Ok(_) => Finding::ok("serve", format!("it can listen on {}", serve.listen)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => {
            Finding::ok("serve", format!("{} is in use: by `serve` itself, or by another program", serve.listen))
        }
        Err(error) => {
            Finding::error("serve", CommandError::failed(format!("cannot listen on {}", serve.listen))(error))
        }
    }
}
