//! Measures the CPU time of each step of a load alone: receive saved pages over loopback, flatten, compress, write to a
//! file. There is no HTTP, no comparison and no ledger, and no step uses the result of an earlier step.
//!
//! `floor FOLDER SCRATCH` reads the pages `*.json` of the folder, and prints CPU seconds as one JSON object. It writes
//! into the scratch folder. `make bench` runs it; it does not benchmark the program.

use std::{
    error::Error,
    fs::{self, File},
    hint::black_box,
    io::{Read, Write},
    net::{TcpListener, TcpStream},
    path::Path,
    thread,
};

use studysync::{
    flatten::flatten_page,
    model::{DriftRules, Stream},
};

/// The zstd level of the archive.
const ARCHIVE_LEVEL: i32 = 1;
/// Bytes per read from a socket.
const RECEIVE_BYTES: usize = 256 * 1024;
/// Clock ticks per second in `/proc/self/stat`, the same on every Linux.
const TICKS_PER_SEC: f64 = 100.0;

fn main() -> Result<(), Box<dyn Error>> {
    // Cargo passes `--bench` to every benchmark.
    let arguments: Vec<String> = std::env::args().skip(1).filter(|argument| !argument.starts_with("--")).collect();
    let [folder, scratch] = arguments.as_slice() else {
        println!("usage: floor FOLDER SCRATCH (see `make bench`)");
        return Ok(());
    };
    let (pages, scratch) = (read_pages(Path::new(folder))?, Path::new(scratch));
    let receive = received(&pages)?;
    let flatten = costed(|| pages.iter().try_for_each(|page| flatten(page)))?;
    let keep = costed(|| keep(&pages, &scratch.join("pages")))?;
    println!(r#"{{"receive_cpu_secs":{receive:.3},"flatten_cpu_secs":{flatten:.3},"keep_cpu_secs":{keep:.3}}}"#);
    Ok(())
}

/// Returns the CPU seconds that this process spends on `work`.
fn costed(work: impl FnOnce() -> Result<(), Box<dyn Error>>) -> Result<f64, Box<dyn Error>> {
    let begun = cpu_secs()?;
    work()?;
    Ok(cpu_secs()? - begun)
}

fn read_pages(folder: &Path) -> Result<Vec<Vec<u8>>, Box<dyn Error>> {
    let mut paths = Vec::new();
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.extension().is_some_and(|extension| extension == "json") {
            paths.push(path);
        }
    }
    paths.sort();
    Ok(paths.iter().map(fs::read).collect::<Result<_, _>>()?)
}

/// CPU seconds of this process, all threads.
fn cpu_secs() -> Result<f64, Box<dyn Error>> {
    stat_secs(&fs::read_to_string("/proc/self/stat")?)
}

/// Parses the CPU seconds from the text of `/proc/…/stat`.
fn stat_secs(stat: &str) -> Result<f64, Box<dyn Error>> {
    // The process name may contain any character. After its closing bracket, user and system time are fields 11 and 12,
    // counted from 0.
    let (_, fields) = stat.rsplit_once(')').ok_or("no bracket in stat")?;
    let ticks: Vec<f64> = fields.split_whitespace().skip(11).take(2).map(str::parse).collect::<Result<_, _>>()?;
    Ok(ticks.iter().sum::<f64>() / TICKS_PER_SEC)
}

/// Returns the CPU seconds of the thread that reads the pages from a socket into one buffer. Another thread sends them.
fn received(pages: &[Vec<u8>]) -> Result<f64, Box<dyn Error>> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let address = listener.local_addr()?;
    thread::scope(|scope| {
        let reader = scope.spawn(move || -> std::io::Result<String> {
            let (mut connection, mut buffer) = (TcpStream::connect(address)?, vec![0; RECEIVE_BYTES]);
            while connection.read(&mut buffer)? > 0 {
                black_box(&buffer);
            }
            fs::read_to_string("/proc/thread-self/stat")
        });
        let (mut connection, _) = listener.accept()?;
        pages.iter().try_for_each(|page| connection.write_all(page))?;
        drop(connection);
        let stat = reader.join().map_err(|_| "the reader panicked")??;
        stat_secs(&stat)
    })
}

fn flatten(page: &[u8]) -> Result<(), Box<dyn Error>> {
    black_box(flatten_page(Stream::Responses, page, DriftRules::default())?);
    Ok(())
}

/// Compresses the pages as the archive does, and writes them to one file that is synced once.
fn keep(pages: &[Vec<u8>], path: &Path) -> Result<(), Box<dyn Error>> {
    let mut compressor = zstd::bulk::Compressor::new(ARCHIVE_LEVEL)?;
    let mut file = File::create(path)?;
    for page in pages {
        file.write_all(&compressor.compress(page)?)?;
    }
    Ok(file.sync_all()?)
}
