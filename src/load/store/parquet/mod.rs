//! The warehouse as a tree of Parquet files that any reader understands, without an SQL engine.
//!
//! A commit is one *part*: a folder of its changes, outside of what readers see, made durable and put in place by one rename. Each write
//! of a transaction is a *layer* of the part: keys of removed rows, and added rows as sorted runs, one for each partition. *Publish*
//! merges the runs of waiting parts into the files of the partitions that they touch. So a commit costs what it brings, and a partition
//! is rewritten once a publish, not once a commit.
//!
//! In reading order: [`options`] and [`limits`], [`root`] (the folder) and its [`lock`], [`partition`] (how tables are cut), [`tree`] (the files),
//! [`layer`], [`part`] and [`old_part`] (commits that wait), [`sources`] (what makes up a partition); [`order`] and
//! [`table_file`] (what is in a file), [`sorted_rows`] (sorting in memory), [`open_part`] (writing a commit); [`pick`], [`rows_reader`],
//! [`row_tests`] and [`removed_keys`] (which rows count), [`kept`] and [`read`]; [`merge`], [`runs`], [`partition_merge`], [`publish`] and
//! [`workers`]; [`inventory`] (which files there must be); [`store`]; and [`disk`], through which every durable step goes.

mod disk;
mod inventory;
mod layer;
mod limits;
mod lock;
mod merge;
mod old_part;
mod open_part;
mod options;
mod order;
mod parallel;
mod part;
mod partition;
mod partition_cache;
mod partition_merge;
mod pick;
mod publish;
mod read;
mod removed_keys;
mod root;
mod row_tests;
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

pub use options::ParquetOptions;
pub use partition::PartitionBy;
pub(in crate::load) use store::ParquetStore;
