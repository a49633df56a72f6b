//! Which tables a scan fills.

use crate::{
    model::{Flag, Scan, Stream},
    schema::{Column, Table, TableKind},
};

/// Whether pages of the scan have rows of the table.
pub(super) fn is_filled_by(table: &Table, scan: &Scan) -> bool {
    table.stream.as_deref() == Some(scan.scope.stream.name())
        && matches!(table.kind, TableKind::Base | TableKind::Child | TableKind::Versioned)
}

/// Whether visitors' snapshots come with the records.
pub(super) fn brings_snapshots(scan: &Scan) -> bool {
    scan.flags.contains(Flag::WithSnapshots) && scan.scope.stream == Stream::Responses
}

/// Whether the scan asked for what the child table is made of.
pub(super) fn brings(scan: &Scan, child: &Table) -> bool {
    child.flag.is_none_or(|flag| scan.flags.contains(flag))
}

/// Whether the scan asked for the field behind the column.
pub(super) fn was_asked_for(scan: &Scan, column: &Column) -> bool {
    column.flag.is_none_or(|flag| scan.flags.contains(flag))
}
