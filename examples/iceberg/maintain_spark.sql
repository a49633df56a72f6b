-- Maintains the tables of a studysync warehouse in an Iceberg catalog, with Spark: the same as maintain.py, for teams that have Spark.
-- Replace `lake` by the name of your catalog in Spark, `studysync` by the namespace, and the table; each statement is for one table.
--
--   spark-sql --conf spark.sql.extensions=org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions -f maintain_spark.sql

-- 1. Write files anew: small files, and all files with rows that are only marked as removed. Lists of removed rows that no file needs
--    any more are dropped.
CALL lake.system.rewrite_data_files(table => 'studysync.responses', options => map('min-input-files', '5', 'delete-file-threshold', '1', 'remove-dangling-deletes', 'true'));
CALL lake.system.rewrite_position_delete_files(table => 'studysync.responses');
CALL lake.system.rewrite_manifests(table => 'studysync.responses');

-- 2. Expire snapshots, and remove the files that only they need. After `studysync erase`: all but the current one, now.
CALL lake.system.expire_snapshots(table => 'studysync.responses', older_than => timestamp'2026-01-01 00:00:00', retain_last => 1);

-- 3. Remove files of failed commits. Spark refuses a time that is less than 24 hours ago, since a run may be about to commit.
CALL lake.system.remove_orphan_files(table => 'studysync.responses');
