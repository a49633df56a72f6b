//! Erasures in catalogs.

use std::{collections::BTreeSet, path::PathBuf, time::Duration};

use arrow::util::pretty::pretty_format_batches;
use tempfile::TempDir;

use super::{
    AttachedStore, CATALOG, Store, exists,
    suite::{
        PATIENCE, ducklake_in, ducklake_in_postgres, ducklake_of_postgres, files_with, iceberg, in_postgres, open,
        postgres, postgres_of_two_users, session,
    },
    tables,
};
use crate::{
    load::{
        CommitOptions, LoadError,
        conformance::{Kind, answer, answers_scan, identity, page, pages::WantedRows},
    },
    model::{CatalogAddress, LakeCatalog, PostgresAddress},
    schema::quote_text,
};

#[test]
#[ignore = "slow: run by `make lakes`"]
fn p7_no_byte_of_an_erased_person_is_left_in_a_ducklake() {
    const PERSON: &str = "session-of-the-erased-person";
    let folder = TempDir::new().unwrap();
    let kind = ducklake_in(folder.path());
    let mut warehouse = kind.open(&identity("test")).unwrap();
    let records = [answer(PERSON, 0, PERSON), answer("another", 0, "another")];
    let scan = answers_scan(0, 0, 1);
    warehouse.apply_and_commit(&scan, &WantedRows(&[page(&records)]), &CommitOptions::default()).unwrap();
    warehouse.release_lock().unwrap();
    assert!(!files_with(folder.path(), PERSON).is_empty());
    assert_eq!(warehouse.erase_people(&session(PERSON)).unwrap().total(), 1);
    warehouse.release_lock().unwrap();
    assert_eq!(files_with(folder.path(), PERSON), Vec::<PathBuf>::new());
    drop(warehouse);
    let found = kind.reader().query("SELECT response_group_uid FROM responses", 10).unwrap().batches;
    assert!(pretty_format_batches(&found).unwrap().to_string().contains("another"));
}

#[test]
#[ignore = "slow: run by `make lakes`"]
fn p7_an_erasure_rewrites_the_catalog_of_a_ducklake_in_postgres() {
    const PERSON: &str = "session-of-the-erased-person";
    let kind = ducklake_of_postgres(&TempDir::new().unwrap().keep());
    let mut warehouse = kind.open(&identity("test")).unwrap();
    let records = [answer(PERSON, 0, "text"), answer("another", 0, "text")];
    let scan = answers_scan(0, 0, 1);
    warehouse.apply_and_commit(&scan, &WantedRows(&[page(&records)]), &CommitOptions::default()).unwrap();
    warehouse.require_erasable().unwrap();
    let CatalogAddress::DuckLake { catalog: LakeCatalog::Postgres(PostgresAddress { schema, .. }), .. } =
        &kind.catalog.address
    else {
        unreachable!()
    };
    // Whether a table of the catalog has the person, and the files of all tables.
    let catalog = || {
        let mut store = open(&kind, &identity("test"), true).unwrap();
        let mut found = String::new();
        for table in store.foreign_tables().unwrap() {
            let mut read = |rows| {
                found += &pretty_format_batches(&[rows]).unwrap().to_string();
                Ok(())
            };
            store.read_foreign(&table, &mut read).unwrap();
        }
        let files = format!(
            "SELECT pg_relation_filepath(c.oid) FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace \
             WHERE c.relkind = 'r' AND n.nspname = {}",
            quote_text(schema)
        );
        let files = tables::texts(store.engine.connection(), &tables::postgres_sql(tables::LAKE_CATALOG, &files));
        (found.contains(PERSON), files.unwrap().into_iter().collect::<BTreeSet<String>>())
    };
    let (is_found, files) = catalog();
    assert!(is_found && files.len() > 20, "{files:?}");
    assert_eq!(warehouse.erase_people(&session(PERSON)).unwrap().total(), 1);
    let (is_found, rewritten) = catalog();
    assert!(!is_found && rewritten.is_disjoint(&files), "{rewritten:?}");
}

/// An erasure leaves the other rows of every kind of catalog.
#[test]
#[ignore = "slow: run by `make lakes`"]
fn p7_an_erasure_removes_one_person_from_a_catalog() {
    for kind in [ducklake_in_postgres(), postgres(), iceberg()] {
        let mut warehouse = kind.open(&identity("test")).unwrap();
        let records = [answer("person", 0, "text"), answer("another", 0, "text")];
        let scan = answers_scan(0, 0, 1);
        warehouse.apply_and_commit(&scan, &WantedRows(&[page(&records)]), &CommitOptions::default()).unwrap();
        assert_eq!(warehouse.erase_people(&session("person")).unwrap().total(), 1);
        let found = kind.reader().query("SELECT response_group_uid FROM responses", 10).unwrap().batches;
        let found = pretty_format_batches(&found).unwrap().to_string();
        assert!(found.contains("another") && !found.contains("person"), "{found}");
    }
}

/// PostgreSQL skips a table of another user with a warning.
#[test]
#[ignore = "slow: run by `make lakes`"]
fn p7_only_the_owner_erases_in_postgres() {
    let (owner, guest, schema) = postgres_of_two_users();
    let Err(creation) = open(&guest, &identity("test"), false) else { panic!("the guest created tables") };
    for refused in [exists(&guest.catalog).unwrap_err(), creation] {
        assert!(refused.to_string().contains("may not create tables"), "{refused}");
    }
    let mut warehouse = owner.open(&identity("test")).unwrap();
    let granted = format!("USAGE ON SCHEMA {schema} TO {schema}; GRANT SELECT, INSERT, UPDATE, DELETE ON ALL TABLES");
    in_postgres(&owner, &format!("GRANT {granted} IN SCHEMA {schema} TO {schema}"));
    assert!(exists(&guest.catalog).unwrap());
    warehouse.require_erasable().unwrap();
    let refused = guest.open(&identity("test")).unwrap().require_erasable().unwrap_err().to_string();
    assert!(refused.contains(&format!("{schema} does not own")), "{refused}");
}

/// PostgreSQL keeps removed rows for transactions that began before, and values of columns in statistics.
#[test]
#[ignore = "slow: run by `make lakes`"]
fn p7_an_erasure_in_postgres_waits_for_older_transactions() {
    let (mut owner, _, schema) = postgres_of_two_users();
    owner.wait = Duration::ZERO;
    let mut warehouse = owner.open(&identity("test")).unwrap();
    let records = [answer("person", 0, "text"), answer("another", 0, "text")];
    let scan = answers_scan(0, 0, 1);
    warehouse.apply_and_commit(&scan, &WantedRows(&[page(&records)]), &CommitOptions::default()).unwrap();
    in_postgres(&owner, "ANALYZE");
    let mut reader = open(&owner, &identity("test"), true).unwrap();
    let count = format!("SELECT count(*) FROM {}", reader.relation("responses"));
    let counted = |reader: &mut AttachedStore, sql: &str| {
        reader.in_transaction(|store| store.engine.integers::<1>("count", sql)).unwrap()
    };
    let in_statistics = format!(
        "SELECT tablename FROM pg_stats WHERE schemaname = '{schema}' AND \
         coalesce(most_common_vals::text, '') || coalesce(histogram_bounds::text, '') LIKE '%person%'"
    );
    let in_statistics =
        format!("SELECT least(count(*), 1) FROM postgres_query('{CATALOG}', {})", quote_text(&in_statistics));
    assert_eq!(counted(&mut reader, &count), [2]);
    assert_eq!(counted(&mut reader, &in_statistics), [1]);
    let waits = warehouse.erase_people(&session("person")).unwrap_err();
    let is_named = matches!(&waits, LoadError::Locked { holder: Some(holder), .. } if holder.contains("user postgres"));
    assert!(is_named, "{waits:?}");
    assert_eq!(counted(&mut reader, &count), [2]);
    reader.rollback();
    drop(warehouse);
    owner.wait = PATIENCE;
    let mut warehouse = owner.open(&identity("test")).unwrap();
    // The rows are removed already; their bytes are not.
    assert_eq!(warehouse.erase_people(&session("person")).unwrap().total(), 0);
    assert_eq!(counted(&mut reader, &count), [1]);
    assert_eq!(counted(&mut reader, &in_statistics), [0]);
}
