//! A report parsed by a browser engine's parser, which also reports errors that a browser corrects.

use std::{collections::BTreeMap, default::Default};

use html5ever::{parse_document, tendril::TendrilSink};
use markup5ever_rcdom::{Handle, NodeData, RcDom};

/// A page, with its elements in document order.
pub struct Page {
    pub html: String,
    pub elements: Vec<Element>,
    /// The errors that the parser corrected.
    pub errors: Vec<String>,
}

/// One element.
#[derive(Clone, Debug)]
pub struct Element {
    pub name: String,
    pub attributes: BTreeMap<String, String>,
    /// All text inside, without that of drawings.
    pub text: String,
    /// The enclosing elements, the root first, as indexes into `elements`.
    pub ancestors: Vec<usize>,
}

/// A table: its source, and the texts of its body's cells, row by row.
#[derive(Clone, Debug)]
pub struct Table {
    pub at: usize,
    pub rows: Vec<Vec<String>>,
    pub heads: Vec<String>,
}

impl Page {
    pub fn parse(html: &str) -> Page {
        let dom = parse_document(RcDom::default(), Default::default()).one(html);
        let mut elements = Vec::new();
        walk(&dom.document, &mut Vec::new(), &mut elements);
        let errors = dom.errors.borrow().iter().map(|error| error.to_string()).collect();
        Page { html: html.to_owned(), elements, errors }
    }

    pub fn named<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a Element> {
        self.elements.iter().filter(move |element| element.name == name)
    }

    pub fn by_id(&self, id: &str) -> Option<&Element> {
        self.elements.iter().find(|element| element.attribute("id") == Some(id))
    }

    /// Returns the text of the only section with this id.
    pub fn section(&self, id: &str) -> &str {
        &self.by_id(id).unwrap_or_else(|| panic!("no section {id}")).text
    }

    /// Returns the tables whose attribute has this value.
    pub fn tables(&self, attribute: &str, value: &str) -> Vec<Table> {
        let is_wanted = |(at, element): (usize, &Element)| {
            (element.name == "table" && element.attribute(attribute) == Some(value)).then(|| self.table(at))
        };
        self.elements.iter().enumerate().filter_map(is_wanted).collect()
    }

    /// Returns the only table of a view inside an element that is labelled by this id.
    pub fn table_in(&self, labelled_by: &str, view: &str) -> Option<Table> {
        let is_inside = |table: &Table| {
            let mut around = self.elements[table.at].ancestors.iter();
            around.any(|at| self.elements[*at].attribute("aria-labelledby") == Some(labelled_by))
        };
        let mut found: Vec<Table> = self.tables("data-view", view).into_iter().filter(is_inside).collect();
        assert!(found.len() <= 1, "{} tables of {view} in {labelled_by}", found.len());
        found.pop()
    }

    fn table(&self, at: usize) -> Table {
        let inside = |part: &str| {
            let within = |element: &&Element| {
                element.ancestors.contains(&at)
                    && element.ancestors.iter().any(|held| self.elements[*held].name == part)
            };
            self.elements.iter().enumerate().filter(move |(_, element)| within(element)).collect::<Vec<_>>()
        };
        let cells = inside("tbody");
        let row = |row: usize| -> Vec<String> {
            let is_cell = |element: &Element| ["td", "th"].contains(&element.name.as_str());
            let of_row = cells.iter().filter(|(_, cell)| is_cell(cell) && cell.ancestors.last() == Some(&row));
            of_row.map(|(_, cell)| cell.text.trim().to_owned()).collect()
        };
        let rows = cells.iter().filter(|(_, element)| element.name == "tr").map(|(at, _)| row(*at)).collect();
        let heads = inside("thead").into_iter().filter(|(_, element)| ["th", "td"].contains(&element.name.as_str()));
        Table { at, rows, heads: heads.map(|(_, head)| head.text.trim().to_owned()).collect() }
    }
}

impl Element {
    pub fn attribute(&self, name: &str) -> Option<&str> {
        self.attributes.get(name).map(String::as_str)
    }
}

fn walk(node: &Handle, ancestors: &mut Vec<usize>, elements: &mut Vec<Element>) {
    match &node.data {
        NodeData::Text { contents } => {
            // The names of drawings are not visible text.
            let is_drawn = ancestors.iter().any(|at| elements[*at].name == "svg");
            // A percentage stays in one line.
            let contents = contents.borrow().replace('\u{a0}', " ");
            for (depth, at) in ancestors.iter().enumerate() {
                if !is_drawn || depth + 1 == ancestors.len() {
                    elements[*at].text.push_str(&contents);
                }
            }
        }
        NodeData::Element { name, attrs, .. } => {
            let attributes = attrs.borrow();
            let attributes = attributes.iter().map(|held| (held.name.local.to_string(), held.value.to_string()));
            let element = Element {
                name: name.local.to_string(),
                attributes: attributes.collect(),
                text: String::new(),
                ancestors: ancestors.clone(),
            };
            elements.push(element);
            ancestors.push(elements.len() - 1);
            node.children.borrow().iter().for_each(|child| walk(child, ancestors, elements));
            ancestors.pop();
        }
        _ => node.children.borrow().iter().for_each(|child| walk(child, ancestors, elements)),
    }
}
