//! Which tables and columns a scan fills.

use crate::{
    model::{Flag, Scan, Stream},
    schema::{Column, Table, TableKind},
};

/// Returns true if the pages of the scan's stream can contain rows of the table.
pub(super) fn is_filled_by(table: &Table, scan: &Scan) -> bool {
    table.stream.as_deref() == Some(scan.scope.stream.name())
        && matches!(table.kind, TableKind::Base | TableKind::Child | TableKind::Versioned)
}

/// Returns true if the scan returns snapshots of visitors with its records.
pub(super) fn includes_snapshots(scan: &Scan) -> bool {
    scan.flags.contains(Flag::WithSnapshots) && scan.scope.stream == Stream::Responses
}

/// Returns true if the scan requested the fields from which the rows of the child table are built.
pub(super) fn includes_child(scan: &Scan, child: &Table) -> bool {
    child.flag.is_none_or(|flag| scan.flags.contains(flag))
}

/// Returns true if the scan requested the field that the column stores.
pub(super) fn is_requested(scan: &Scan, column: &Column) -> bool {
    column.flag.is_none_or(|flag| scan.flags.contains(flag))
}
