//! The warehouse as a tree of Parquet files that any reader understands, without a SQL engine.
//!
//! A commit is a *part*: a folder of changes that readers do not see, made durable and committed by one rename. Each
//! write of a transaction adds a *layer* to the part: keys of removed rows, and added rows as sorted files (*sorted
//! runs*), one for each partition. A committed part *waits* until *publish* merges its layers into the files of
//! partitions. So the cost of a commit depends only on its rows, and a partition is rewritten at most once in a
//! publish. A *pick* is a selection of rows of a file.
//!
//! Reading order:
//! [`options`]; [`root`] (the folder), its [`lock`], [`partition`] (how tables are cut) and [`tree`]
//! (the files);
//! [`part`] (waiting commits), [`sources`] (the files of a partition);
//! [`order`] and [`table_file`] (the content of a file), [`sorted_rows`] (sorting in memory), [`open_part`] (writing a
//! commit);
//! [`rows_reader`] and [`removed_keys`] (selecting rows), [`partition_cache`] and [`read`];
//! [`merge`], [`runs`], [`partition_merge`], [`publish`] and [`parallel`]; [`inventory`] (the list of files);
//! [`store`]; [`analyst_folder`] (the copy without personal data);
//! [`remote`] (the same in a bucket), its [`working_copy`] and [`lease`], [`bucket_tables`] (for readers) and [`night`]
//! (its requests);
//! [`disk`] (the durable steps on the file system).

mod analyst_folder;
#[cfg(test)]
mod bucket_suite;
mod bucket_tables;
mod chunk;
mod disk;
mod inventory;
mod lease;
mod lock;
mod merge;
mod night;
mod open_part;
mod options;
mod order;
mod parallel;
mod part;
mod partition;
mod partition_cache;
mod partition_merge;
mod publish;
mod read;
mod remote;
mod removed_keys;
mod root;
mod rows_reader;
mod runs;
mod sorted_rows;
mod sources;
mod store;
#[cfg(test)]
mod suite;
mod table_file;
#[cfg(test)]
mod tests;
mod tree;
mod working_copy;

pub(in crate::load) use bucket_tables::{BucketTables, folders as reader_folders, is_warehouse, read_objects};
pub use night::NightEstimate;
pub use options::ParquetOptions;
pub use partition::PartitionBy;
pub(in crate::load) use root::folders;
pub(in crate::load) use store::ParquetStore;
