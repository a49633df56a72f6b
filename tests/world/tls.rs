//! Common problems with HTTPS: each kind of wrong certificate, ports with another protocol, a proxy. Each error comes
//! at once and names the action. The certificates in `tests/cases/tls` are valid until 2120, except the expired one.

use std::{
    io::{Read, Write},
    net::{Shutdown, TcpListener, TcpStream},
    path::PathBuf,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
};

use rustls::{
    ServerConfig, ServerConnection, StreamOwned,
    pki_types::{CertificateDer, PrivateKeyDer, pem::PemObject},
};

use crate::harness::{Done, Place, Service, small};

fn fixture(name: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("tests/cases/tls").join(name)
}

/// A port that counts its connections and passes each to `serve`.
struct Port {
    port: u16,
    connections: Arc<AtomicU64>,
}

impl Port {
    fn start(serve: impl Fn(TcpStream) + Send + Sync + 'static) -> Port {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let connections = Arc::new(AtomicU64::new(0));
        let (count, serve) = (Arc::clone(&connections), Arc::new(serve));
        // The thread lives until the tests end.
        std::thread::spawn(move || {
            for stream in listener.incoming().flatten() {
                count.fetch_add(1, Ordering::Relaxed);
                let serve = Arc::clone(&serve);
                std::thread::spawn(move || serve(stream));
            }
        });
        Port { port, connections }
    }

    fn count(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }
}

/// The sandbox with a TLS certificate.
fn https(service: &Service, certificate: &str) -> Port {
    let _ = rustls::crypto::ring::default_provider().install_default();
    let chain = vec![CertificateDer::from_pem_file(fixture(certificate)).unwrap()];
    let key = PrivateKeyDer::from_pem_file(fixture("key.pem")).unwrap();
    let config = ServerConfig::builder().with_no_client_auth().with_single_cert(chain, key).unwrap();
    let (config, behind) = (Arc::new(config), service.base_url().trim_start_matches("http://").to_owned());
    Port::start(move |stream| {
        let mut stream = StreamOwned::new(ServerConnection::new(Arc::clone(&config)).unwrap(), stream);
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") {
            match stream.read(&mut byte) {
                Ok(1) => head.push(byte[0]),
                _ => return,
            }
        }
        let closing = String::from_utf8(head).unwrap().replacen("\r\n", "\r\nconnection: close\r\n", 1);
        let mut upstream = TcpStream::connect(&behind).unwrap();
        upstream.write_all(closing.as_bytes()).unwrap();
        let mut answer = Vec::new();
        upstream.read_to_end(&mut answer).unwrap();
        let _ = stream.write_all(&answer);
        stream.conn.send_close_notify();
        let _ = stream.flush();
    })
}

/// Runs `check` at an address, with the certificates that this machine trusts.
fn check(base_url: &str, environment: &[(&str, &str)]) -> Done {
    let mut place = Place::at(base_url).without_parquet();
    for (name, value) in environment {
        place = place.with_env(name, value);
    }
    let mut command = place.command(&["check"]);
    let proxies = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "NO_PROXY", "no_proxy"];
    let proxies = proxies.into_iter().chain(["HTTP_PROXY", "http_proxy"]);
    for name in proxies.chain(["SSL_CERT_FILE", "SSL_CERT_DIR"]) {
        if environment.iter().all(|(known, _)| *known != name) {
            command.env_remove(name);
        }
    }
    Done::from(command.output().unwrap())
}

fn assert_told(done: &Done, words: &[&str]) {
    assert_eq!(done.code, 1, "{} {}", done.stdout, done.stderr);
    assert!(done.stderr.contains("requesting "), "nobody waits without a word: {}", done.stderr);
    for word in words.iter().chain(&["hint:"]) {
        assert!(done.stdout.contains(word), "'{word}' is missing in {}", done.stdout);
    }
}

fn authority() -> String {
    fixture("ca.pem").display().to_string()
}

#[test]
fn ssl_cert_file_adds_a_private_authority() {
    let service = Service::start(small(60, 3));
    let port = https(&service, "good.pem");
    let done = check(&format!("https://localhost:{}", port.port), &[("SSL_CERT_FILE", &authority())]);
    assert_eq!(done.code, 0, "{} {}", done.stdout, done.stderr);
}

#[test]
fn a_wrong_certificate_is_explained_at_once() {
    let service = Service::start(small(60, 3));
    let trusted = authority();
    for (certificate, trusted, words) in [
        ("expired.pem", &trusted, "has expired"),
        ("other.pem", &trusted, "for another name"),
        // Another certificate authority than the one that signed the certificate.
        ("good.pem", &fixture("other-ca.pem").display().to_string(), "does not know"),
    ] {
        let port = https(&service, certificate);
        let done = check(&format!("https://localhost:{}", port.port), &[("SSL_CERT_FILE", trusted)]);
        assert_told(&done, &[words, "SSL_CERT_FILE"]);
        assert_eq!(port.count(), 1, "{certificate}: there is no use in asking again");
    }
    let done = check("https://localhost:1", &[("SSL_CERT_FILE", "/nowhere/at-all.pem")]);
    assert_eq!(done.code, 2, "{} {}", done.stdout, done.stderr);
    assert!(done.stdout.contains("SSL_CERT_FILE"), "{}", done.stdout);
}

#[test]
fn a_port_with_another_protocol_is_explained() {
    let service = Service::start(small(60, 3));
    let plain = Port::start(|mut stream| {
        let mut hello = [0; 64];
        let _ = stream.read(&mut hello);
        let _ = stream.write_all(b"HTTP/1.1 400 Bad Request\r\ncontent-length: 0\r\n\r\n");
        let _ = stream.shutdown(Shutdown::Write);
    });
    let trusted = authority();
    let trust = [("SSL_CERT_FILE", trusted.as_str())];
    assert_told(&check(&format!("https://localhost:{}", plain.port), &trust), &["plain http", "HTTPS_PROXY"]);
    assert_eq!(plain.count(), 1);
    let secret = https(&service, "good.pem");
    assert_told(&check(&format!("http://localhost:{}", secret.port), &[]), &["https"]);
    assert_eq!(secret.count(), 1);
    let closing = Port::start(|stream| drop(stream.shutdown(Shutdown::Both)));
    assert_told(&check(&format!("https://localhost:{}", closing.port), &trust), &["localhost"]);
    assert!(closing.count() <= 2, "{} attempts", closing.count());
}

#[test]
fn a_missing_port_or_host_is_explained() {
    let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let trusted = authority();
    let trust = [("SSL_CERT_FILE", trusted.as_str())];
    for scheme in ["http", "https"] {
        let done = check(&format!("{scheme}://localhost:{port}"), &trust);
        assert_told(&done, &["no program listens there", "HTTPS_PROXY"]);
    }
    assert_told(&check("https://no-such-host.invalid", &trust), &["the name of the host is not known"]);
    let page = Port::start(|mut stream| {
        let _ = stream.read(&mut [0; 2048]);
        let body = "<!doctype html><title>Sign in</title>";
        let head = format!("HTTP/1.1 200 OK\r\ncontent-type: text/html\r\ncontent-length: {}\r\n\r\n", body.len());
        let _ = stream.write_all(format!("{head}{body}").as_bytes());
        let _ = stream.shutdown(Shutdown::Write);
    });
    assert_told(&check(&format!("http://localhost:{}", page.port), &[]), &["a web page instead of JSON", "--base-url"]);
    assert!(page.count() <= 2, "{} attempts", page.count());
}

#[test]
fn https_proxy_sets_the_proxy() {
    let service = Service::start(small(60, 3));
    let secret = https(&service, "good.pem");
    let to = secret.port;
    let proxy = Port::start(move |mut stream| {
        let mut head = Vec::new();
        let mut byte = [0];
        while !head.ends_with(b"\r\n\r\n") && stream.read(&mut byte).is_ok_and(|read| read == 1) {
            head.push(byte[0]);
        }
        if !head.starts_with(b"CONNECT service.test:443 ") {
            let _ = stream.write_all(b"HTTP/1.1 502 Bad Gateway\r\n\r\n");
            return;
        }
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n");
        tunnel(stream, to);
    });
    let (address, trusted) = (format!("http://127.0.0.1:{}", proxy.port), authority());
    let through = [("SSL_CERT_FILE", trusted.as_str()), ("HTTPS_PROXY", address.as_str())];
    let done = check("https://service.test", &through);
    assert_eq!(done.code, 0, "{} {}", done.stdout, done.stderr);
    assert!(proxy.count() > 0);
    // The error says that a proxy refused the connection.
    assert_told(&check("https://elsewhere.test", &through), &["proxy", "HTTPS_PROXY"]);
}

/// Copies the bytes of both directions until both are closed.
fn tunnel(mut stream: TcpStream, to: u16) {
    let upstream = TcpStream::connect(("127.0.0.1", to)).unwrap();
    let (mut from, mut back) = (stream.try_clone().unwrap(), upstream.try_clone().unwrap());
    std::thread::spawn(move || {
        let _ = std::io::copy(&mut from, &mut back);
        let _ = back.shutdown(Shutdown::Write);
    });
    let _ = std::io::copy(&mut &upstream, &mut stream);
    let _ = stream.shutdown(Shutdown::Both);
}

#[test]
fn all_proxy_may_name_a_socks_proxy() {
    let service = Service::start(small(60, 3));
    let secret = https(&service, "good.pem");
    let to = secret.port;
    let proxy = Port::start(move |mut stream| {
        // SOCKS5: the greeting with its methods, then version 5, CONNECT, a name with its length, and a port.
        let mut greeting = [0; 2];
        if stream.read_exact(&mut greeting).is_err() {
            return;
        }
        stream.read_exact(&mut vec![0; greeting[1].into()]).unwrap();
        stream.write_all(&[5, 0]).unwrap();
        let mut head = [0; 5];
        stream.read_exact(&mut head).unwrap();
        assert_eq!(head[..4], [5, 1, 0, 3], "the name is resolved by the proxy");
        let mut name = vec![0; usize::from(head[4]) + 2];
        stream.read_exact(&mut name).unwrap();
        assert!(name.starts_with(b"service.test"));
        stream.write_all(&[5, 0, 0, 1, 0, 0, 0, 0, 0, 0]).unwrap();
        tunnel(stream, to);
    });
    let (address, trusted) = (format!("socks5h://127.0.0.1:{}", proxy.port), authority());
    let done = check("https://service.test", &[("SSL_CERT_FILE", &trusted), ("ALL_PROXY", &address)]);
    assert_eq!(done.code, 0, "{} {}", done.stdout, done.stderr);
    assert!(proxy.count() > 0 && done.stdout.contains(&format!("go through {address} (ALL_PROXY)")), "{}", done.stdout);
}

#[test]
fn p11_a_proxy_that_cannot_be_used_is_refused() {
    let service = Service::start(small(60, 3));
    let variables = ["HTTPS_PROXY", "https_proxy", "ALL_PROXY", "all_proxy", "HTTP_PROXY", "http_proxy"];
    let values = [
        "ftp://me:s3cr3t@p.example:1",
        "http://",
        ":::",
        "http://me:s3cr3t@p.example:99999",
        "a s3cr3t b",
        "http://p.example/s3cr3t.pac",
    ];
    for (variable, value) in variables.into_iter().zip(values) {
        let place = Place::new(&service).without_parquet().with_env(variable, value);
        for command in [
            ["check"].as_slice(),
            &["sync"],
            &["verify", "--from", "2026-01-01"],
            &["plan", "--probe"],
            &["serve", "--listen", "127.0.0.1:0"],
        ] {
            let done = place.run(command).expect(2);
            let told = format!("{}{}", done.stdout, done.stderr);
            assert!(told.contains(variable) && told.contains("hint: write http://HOST:PORT"), "{command:?}: {told}");
            assert!(!told.contains("s3cr3t") && !told.contains("ok   proxy"), "{command:?}: {told}");
        }
        assert_eq!(service.log().len(), 0, "{variable}: nothing is sent another way");
    }
    // An empty variable counts as unset, and a variable that another one overrides is ignored.
    let place = Place::new(&service)
        .with_env("HTTPS_PROXY", "")
        .with_env("https_proxy", "http://p.example:1")
        .with_env("ALL_PROXY", ":::");
    let told = place.run(&["check"]).expect(2).stdout;
    assert!(told.contains("ALL_PROXY"), "it is the proxy of http addresses: {told}");
    let told = place.with_env("HTTP_PROXY", "p.example:2").run(&["check"]).expect(0).stdout;
    let way = "ok   proxy      requests to 127.0.0.1 go directly, and those to other hosts go through http://p.example:1 (https_proxy)";
    assert!(told.contains(way), "{told}");
}
