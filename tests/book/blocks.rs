//! Runs each `sql` block against a sandbox warehouse, and parses each `toml` block as a configuration.

use studysync::config::{self, Overrides};

use super::{Block, documents};
use crate::harness::{Place, Service, connect, small};

fn blocks(language: &str) -> Vec<Block> {
    documents().iter().flat_map(|page| page.blocks()).filter(|block| block.language == language).collect()
}

#[test]
fn every_statement_runs() {
    let service = Service::start(small(600, 12));
    let place = Place::new(&service);
    place.report(&["sync"], 0);
    let engine = connect();
    let blocks = blocks("sql");
    assert!(blocks.len() >= 10, "only {} blocks", blocks.len());
    for Block { place: at, text, .. } in blocks.into_iter().filter(|block| block.is_run) {
        // `query` cannot open files. Blocks that read Parquet files by path are for plain DuckDB.
        if text.contains("read_parquet") {
            let statement = text.replace("warehouse-parquet", place.parquet().to_str().unwrap());
            let read = engine.execute_batch(&statement);
            assert!(read.is_ok(), "{at}: {read:?}");
            continue;
        }
        std::fs::write(place.path("block.sql"), &text).unwrap();
        let done = place.run(&["query", "--file", "block.sql"]);
        assert_eq!(done.code, 0, "{at}: {}", done.stderr);
    }
}

#[test]
fn every_configuration_is_read() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("studysync.toml");
    let read = |text: &str| {
        std::fs::write(&path, text).unwrap();
        config::resolve(Overrides { config: Some(path.clone()), ..Overrides::default() })
    };
    assert!(read("[warehouse]\nduck = \"x\"").is_err());
    let blocks = blocks("toml");
    assert!(blocks.len() > 8, "only {} blocks", blocks.len());
    for Block { place, text, .. } in blocks {
        let settings = read(&text);
        assert!(settings.is_ok(), "{place}: {settings:?}");
    }
}
