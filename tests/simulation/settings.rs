//! The settings of a run.

use std::{
    fs,
    path::{Path, PathBuf},
    time::Duration,
};

use studysync::{
    config::{ArchiveChoice, Overrides, Settings, resolve},
    model::{DAY_MS, WarehouseKind, WarehousePaths},
};

use super::{
    bucket::{ARCHIVE, ScriptedBucket, WAREHOUSE},
    script::{RunPlan, Script, Warehouses},
    service::BASE_URL,
};
use crate::harness::{Catalog, KEY, variable};

/// Returns the settings of a run whose files are in the folder `place` of `folder`. `survey_ids` are the surveys of the
/// service.
pub fn settings_of(
    script: &Script,
    plan: &RunPlan,
    folder: &Path,
    rescan: &str,
    survey_ids: &[i64],
    bucket: Option<&ScriptedBucket>,
    catalog: Option<&Catalog>,
) -> Settings {
    let root = folder.join("place");
    fs::write(folder.join("studysync.toml"), file(script, plan, &root, rescan)).unwrap();
    fs::write(folder.join("key"), KEY).unwrap();
    let parquet = || (WarehouseKind::Parquet, script.bucket.map_or(root.join("parquet"), |_| WAREHOUSE.into()));
    let in_catalog = |catalog: &Catalog| (catalog.warehouse_kind(), PathBuf::from(&catalog.address));
    let second = catalog.map_or_else(parquet, in_catalog);
    let mut warehouses = WarehousePaths::from([(WarehouseKind::DuckDb, root.join("warehouse.duckdb")), second]);
    warehouses.retain(|kind, _| match plan.warehouses {
        Warehouses::DuckDb => *kind == WarehouseKind::DuckDb,
        Warehouses::Second => *kind != WarehouseKind::DuckDb,
        Warehouses::Both => true,
    });
    let mut settings = resolve(Overrides {
        config: Some(folder.join("studysync.toml")),
        base_url: Some(BASE_URL.into()),
        api_key_file: Some(folder.join("key")),
        warehouses,
        state: Some(root.join("state/checkpoints.sqlite")),
        archive: Some(match script.keeps_pages {
            true if script.has_archive_in_bucket() => ArchiveChoice::Folder(ARCHIVE.into()),
            true => ArchiveChoice::Folder(root.join("archive")),
            false => ArchiveChoice::Nothing,
        }),
        surveys: plan.surveys.iter().filter_map(|at| survey_ids.get(*at).copied()).collect(),
        concurrency: Some(plan.in_flight),
        deadline: plan.deadline_ms.map(Duration::from_millis),
        max_requests: plan.max_requests,
        ..Overrides::default()
    })
    .unwrap();
    if let Some(bucket) = bucket {
        let warehouses = settings.warehouse.locations.values_mut();
        warehouses.chain([&mut settings.archive_location]).for_each(|location| bucket.connect(location));
    }
    settings
}

/// Returns the text of the configuration file.
fn file(script: &Script, plan: &RunPlan, root: &Path, rescan: &str) -> String {
    // The sync begins where the history begins, or later. Backfills do the rest.
    let since_ms = script.service.now_ms - i64::from(script.first_sync_days) * DAY_MS;
    let flags: Vec<String> = plan.flags.iter().map(|flag| format!("{:?}", flag.name())).collect();
    let extensions =
        script.catalog.map(|_| format!("extension_directory = {:?}\n", variable("STUDYSYNC_TEST_EXTENSIONS")));
    let extensions = extensions.unwrap_or_default();
    let (page_rows, partition) = (script.page_rows, if script.parquet_by_day { "day" } else { "month" });
    format!(
        "[streams.responses]\nflags = [{}]\npage_rows = {page_rows}\nsince = \"{since_ms}\"\n{rescan}\
         [streams.themes]\nsince = \"{since_ms}\"\n{rescan}[streams.surveys]\npage_rows = {page_rows}\n\
         [warehouse]\nparquet_partition = \"{partition}\"\nlock_wait_secs = 0\n{extensions}\
         [recordings]\nenabled = {}\npath = {:?}\n",
        flags.join(", "),
        script.has_recordings,
        root.join("recordings"),
    )
}
