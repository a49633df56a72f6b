//! Which tables and columns a scan fills.

use crate::{
    model::{Flag, Scan, Stream},
    schema::{Column, Table, TableKind},
};

/// Whether pages of the scan have rows of the table.
pub(super) fn is_filled_by(table: &Table, scan: &Scan) -> bool {
    table.stream.as_deref() == Some(scan.scope.stream.name())
        && matches!(table.kind, TableKind::Base | TableKind::Child | TableKind::Versioned)
}

/// Whether the scan returns snapshots of visitors with its records.
pub(super) fn includes_snapshots(scan: &Scan) -> bool {
    scan.flags.contains(Flag::WithSnapshots) && scan.scope.stream == Stream::Responses
}

/// Whether the scan requested the fields from which the child table is built.
pub(super) fn includes_child(scan: &Scan, child: &Table) -> bool {
    child.flag.is_none_or(|flag| scan.flags.contains(flag))
}

/// Whether the scan requested the field of the column.
pub(super) fn is_requested(scan: &Scan, column: &Column) -> bool {
    column.flag.is_none_or(|flag| scan.flags.contains(flag))
}
