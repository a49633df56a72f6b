//! What an erasure would remove. Looks at everything, changes nothing.

use std::collections::BTreeMap;

use super::{
    EraseError, Leads,
    archive::{self, ArchiveFound, RecordsOf},
    leads,
};
use crate::{
    archive::Archive,
    load::{Destination, Facts, PeopleFound},
    model::Identifier,
    person::Finder,
};

/// What would go.
#[derive(Clone, Debug, Default)]
pub struct Plan {
    pub erasure_id: String,
    /// Whether an earlier try was cut short and this goes on with it.
    pub is_resumed: bool,
    pub leads: Leads,
    /// By warehouse.
    pub warehouses: BTreeMap<&'static str, PeopleFound>,
    pub archive: ArchiveFound,
    /// Erasures of other people that were begun and not ended.
    pub others_unfinished: usize,
}

impl Plan {
    /// Rows of the warehouse that has most of them: what a person would count.
    pub fn rows(&self) -> u64 {
        self.warehouses.values().map(PeopleFound::total).max().unwrap_or(0)
    }

    /// Every identifier to go by.
    pub fn people(&self) -> Vec<Identifier> {
        self.leads.all()
    }
}

/// Follows the leads of the request through all warehouses; `earlier` are identifiers that an interrupted try knew.
pub(super) fn follow(
    named: &std::collections::BTreeSet<Identifier>,
    earlier: Vec<Identifier>,
    destinations: &mut [Box<dyn Destination>],
) -> Result<Leads, EraseError> {
    let mut leads = leads::follow(named, |wanted| {
        let mut facts = Facts::default();
        for destination in &mut *destinations {
            let name = destination.name();
            let found = destination.facts(wanted).map_err(EraseError::load(name))?;
            facts.rows.extend(found.rows);
            facts.too_wide.extend(found.too_wide);
        }
        Ok::<_, EraseError>(facts)
    })?;
    leads.led.extend(earlier.into_iter().filter(|identifier| !named.contains(identifier)));
    for identifier in leads.all() {
        let is_a_name = matches!(
            identifier.kind,
            crate::model::IdentifierKind::UserId
                | crate::model::IdentifierKind::Email
                | crate::model::IdentifierKind::VisitorUuid
        );
        if is_a_name {
            leads.visitors_of.entry(identifier).or_insert(1);
        }
    }
    Ok(leads)
}

/// Counts what is held of them.
pub(super) fn count(
    plan: &mut Plan,
    archive: &Archive,
    destinations: &mut [Box<dyn Destination>],
) -> Result<(), EraseError> {
    let people = plan.people();
    for destination in destinations {
        let name = destination.name();
        plan.warehouses.insert(name, destination.find_people(&people).map_err(EraseError::load(name))?);
    }
    let finder = Finder::new(&people);
    plan.archive = archive::find(archive, &RecordsOf::new(&people, &finder))?;
    Ok(())
}
