//! Finds cycles of dependent files. In a cycle, each file uses an item of the next file, and the last file uses one of
//! the first. None of them can be read or tested without all others.
//!
//! A file depends on another file if it names an item of it by path. Re-exports are followed to the file that defines
//! the item, so a `mod.rs` that only declares and re-exports is in no cycle. A re-export alone, or `mod child;`, is no
//! dependency.

use std::collections::{BTreeMap, BTreeSet};

use super::{
    SourceFile,
    code::{Token, end_of_item},
    other_crates, product_code, read_folder,
};

/// Upper bound of the re-exports that one path may pass through.
const STEPS_MAX: usize = 50;

/// A name that a module imports: the local name, and the path that it stands for.
#[derive(Clone, Debug)]
struct Import {
    /// `*` for a glob import.
    name: String,
    path: Vec<String>,
    is_public: bool,
}

/// The names that a file defines and uses.
#[derive(Debug, Default)]
struct Module {
    items: BTreeSet<String>,
    imports: Vec<Import>,
    /// Paths in the code outside `use`, starting at their first name.
    paths: Vec<Vec<String>>,
}

/// The files of a crate by their module paths. The path of the root is empty.
struct Tree {
    modules: BTreeMap<Vec<String>, Module>,
}

impl Tree {
    fn read(files: &[SourceFile]) -> Tree {
        let read = product_code(files).into_iter().filter(|(file, _)| file.place != "main.rs");
        Tree { modules: read.map(|(file, tokens)| (place_in_crate(file), Module::read(&tokens))).collect() }
    }

    /// Returns the module that defines the item that a path, written in `module`, names. `None` for items of other
    /// crates, and for modules themselves.
    fn target(&self, module: &[String], path: &[String]) -> Option<Vec<String>> {
        self.walk(module, path, true, &mut BTreeSet::new())
    }

    fn walk(
        &self,
        module: &[String],
        path: &[String],
        is_head: bool,
        seen: &mut BTreeSet<(Vec<String>, Vec<String>)>,
    ) -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        if seen.len() > STEPS_MAX || !seen.insert((module.to_vec(), path.to_vec())) {
            return None;
        }
        match first.as_str() {
            "crate" => return self.walk(&[], rest, false, seen),
            "self" => return self.walk(module, rest, false, seen),
            "super" => return self.walk(&module[..module.len().checked_sub(1)?], rest, false, seen),
            _ => {}
        }
        let child = [module, std::slice::from_ref(first)].concat();
        if self.modules.contains_key(&child) {
            return self.walk(&child, rest, false, seen);
        }
        let here = self.modules.get(module)?;
        if here.items.contains(first) {
            return Some(module.to_vec());
        }
        // `use maud::maud;` refers to the crate, not to this import.
        let imports = here.imports.iter().filter(|import| import.path[0] != import.name);
        for import in imports.clone().filter(|import| import.name == *first) {
            let path = [&import.path, rest].concat();
            if let Some(target) = self.walk(module, &path, true, seen) {
                return Some(target);
            }
        }
        for import in imports.filter(|import| import.name == "*") {
            let path = [&import.path, path].concat();
            if let Some(target) = self.walk(module, &path, true, seen) {
                return Some(target);
            }
        }
        // The path leads into this crate, but no file defines the name as a plain item: a macro in `module` made it.
        (!is_head && !here.imports.iter().any(|import| import.name == *first)).then(|| module.to_vec())
    }

    /// Returns the files that each file depends on.
    fn arrows(&self) -> BTreeMap<Vec<String>, BTreeSet<Vec<String>>> {
        let arrows = self.modules.iter().map(|(place, module)| {
            let used = module.imports.iter().filter(|import| import.name != "*" && module.uses(import));
            let paths = used.map(|import| &import.path).chain(&module.paths);
            let targets: BTreeSet<_> = paths.filter_map(|path| self.target(place, path)).collect();
            (place.clone(), targets.into_iter().filter(|target| target != place).collect())
        });
        arrows.collect()
    }
}

impl Module {
    fn read(tokens: &[Token]) -> Module {
        let mut module = Module::default();
        let (mut index, mut depth) = (0, 0);
        while index < tokens.len() {
            let token = &tokens[index];
            let before = index.checked_sub(1).map_or("", |before| tokens[before].as_str());
            let after = tokens.get(index + 1);
            match token.as_str() {
                "{" => depth += 1,
                "}" => depth -= 1,
                "use" => {
                    let end = end_of_import(tokens, index);
                    // `pub use`, `pub(super) use`
                    let is_public = before == "pub" || before == ")";
                    imports_of(&tokens[index + 1..end], &[], is_public, &mut module.imports);
                    index = end;
                }
                "fn" | "struct" | "enum" | "union" | "trait" | "type" | "const" | "static" if depth == 0 => {
                    let name = tokens[index + 1..].iter().find(|token| *token != "mut" && *token != "fn");
                    module.items.extend(name.map(|name| name.as_str().to_owned()));
                }
                "macro_rules" => module.items.extend(tokens.get(index + 2).map(|name| name.as_str().to_owned())),
                // An inline module: its items belong to the file.
                "mod" if depth == 0 && tokens.get(index + 2).is_some_and(|token| token == "{") => {
                    module.items.extend(after.map(|name| name.as_str().to_owned()));
                }
                // `mod name;` is a declaration, not a use.
                "mod" => index += 1,
                _ if token.is_word() && before != "::" && before != "." => {
                    let names = tokens[index..].chunks(2);
                    let links = names
                        .clone()
                        .take_while(|pair| pair[0].is_word() && pair.get(1).is_some_and(|token| token == "::"));
                    let length = links.count();
                    let path = tokens[index..].iter().step_by(2).take(length + 1).filter(|token| token.is_word());
                    module.paths.push(path.map(|token| token.as_str().to_owned()).collect());
                }
                _ => {}
            }
            index += 1;
        }
        module
    }

    /// Returns whether the file itself uses an import. A private import is used, or the file would not compile without
    /// a warning.
    fn uses(&self, import: &Import) -> bool {
        !import.is_public || self.paths.iter().any(|path| path[0] == import.name)
    }
}

fn place_in_crate(file: &SourceFile) -> Vec<String> {
    if file.place == "lib.rs" { Vec::new() } else { file.module() }
}

fn end_of_import(tokens: &[Token], begin: usize) -> usize {
    // The `use<'a>` of a bound ends here.
    if tokens.get(begin + 1).is_some_and(|token| token == "<") {
        return begin + 1;
    }
    tokens[begin..].iter().position(|token| token == ";").map_or(tokens.len(), |length| begin + length)
}

/// Collects the imports of `a::b`, `a as b`, `a::{..}` and `a::*`.
fn imports_of(tokens: &[Token], before: &[String], is_public: bool, imports: &mut Vec<Import>) {
    let mut path = before.to_vec();
    let mut name = None;
    for (index, token) in tokens.iter().enumerate() {
        match token.as_str() {
            "::" => {}
            "*" => name = Some("*".to_owned()),
            "as" => {
                name = tokens.get(index + 1).map(|name| name.as_str().to_owned());
                break;
            }
            "self" if !path.is_empty() => {}
            "{" => {
                let inside = &tokens[index + 1..end_of_item(tokens, index) - 1];
                for part in parts(inside) {
                    imports_of(part, &path, is_public, imports);
                }
                return;
            }
            word => path.push(word.to_owned()),
        }
    }
    let Some(name) = name.or_else(|| path.last().cloned()) else { return };
    imports.push(Import { name, path, is_public });
}

/// Splits tokens at the commas that are outside all brackets.
fn parts(tokens: &[Token]) -> Vec<&[Token]> {
    let mut depth = 0;
    let is_comma = |token: &Token| {
        depth += i32::from(token == "{") - i32::from(token == "}");
        depth == 0 && token == ","
    };
    tokens.split(is_comma).filter(|part| !part.is_empty()).collect()
}

/// The files that each file depends on, by name.
pub struct Arrows(BTreeMap<String, BTreeSet<String>>);

impl Arrows {
    pub fn between(files: &[SourceFile]) -> Arrows {
        let named = Tree::read(files)
            .arrows()
            .into_iter()
            .map(|(place, targets)| (name_of(&place), targets.iter().map(|target| name_of(target)).collect()));
        Arrows(named.collect())
    }

    /// Returns the cycles, each as its files. Cycles that share a file are merged.
    pub fn circles(&self) -> Vec<BTreeSet<String>> {
        let reached: BTreeMap<&str, BTreeSet<&str>> =
            self.0.keys().map(|file| (file.as_str(), self.reached_from(file))).collect();
        let circles = reached.iter().filter(|(file, reached)| reached.contains(*file)).map(|(file, others)| {
            let back = others.iter().filter(|other| reached[**other].contains(file));
            back.map(|file| (*file).to_owned()).collect::<BTreeSet<String>>()
        });
        circles.collect::<BTreeSet<_>>().into_iter().collect()
    }

    fn reached_from<'a>(&'a self, file: &'a str) -> BTreeSet<&'a str> {
        let mut reached = BTreeSet::new();
        let mut open = vec![file];
        while let Some(file) = open.pop() {
            let next = self.0[file].iter().map(String::as_str);
            open.extend(next.filter(|next| reached.insert(*next)));
        }
        reached
    }

    /// Returns the dependencies within a cycle, to help break it.
    pub fn within(&self, circle: &BTreeSet<String>) -> Vec<String> {
        let lines = circle.iter().map(|file| {
            let targets: Vec<&str> = self.0[file].intersection(circle).map(String::as_str).collect();
            format!("    {file} -> {}", targets.join(", "))
        });
        lines.collect()
    }
}

fn name_of(place: &[String]) -> String {
    if place.is_empty() { "lib".to_owned() } else { place.join("/") }
}

/// The dependencies of the files of all crates. `crate::` and `super::` never lead to another crate, so each crate is
/// read alone.
fn arrows_of_all_crates() -> Arrows {
    let mut arrows = Arrows::between(&read_folder("src"));
    for name in other_crates() {
        let place = |file: &String| format!("{name}/{file}");
        let read = Arrows::between(&read_folder(&format!("crates/{name}/src")));
        arrows.0.extend(read.0.iter().map(|(file, targets)| (place(file), targets.iter().map(place).collect())));
    }
    arrows
}

#[test]
fn files_stand_in_no_circle() {
    let arrows = arrows_of_all_crates();
    let circles = arrows.circles();
    let problem = |circle| format!("a circle of files:\n{}", arrows.within(circle).join("\n"));
    super::assert_none(circles.iter().map(problem).collect());
}

#[test]
fn the_rooms_of_the_pipeline_stand_in_no_circle() {
    let files = arrows_of_all_crates().0;
    // The files of `src/pipeline/` itself are one room.
    let room = |file: &str| {
        let place = file.split('/').take(2).collect::<Vec<_>>().join("/");
        let is_folder = files.keys().any(|other| other.starts_with(&format!("{place}/")));
        if is_folder { place } else { "pipeline".to_owned() }
    };
    let mut rooms: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (file, targets) in files.iter().filter(|(file, _)| file.starts_with("pipeline/")) {
        let own = room(file);
        let targets = targets.iter().filter(|target| target.starts_with("pipeline/")).map(|target| room(target));
        let others: Vec<String> = targets.filter(|other| *other != own).collect();
        rooms.entry(own).or_default().extend(others);
    }
    assert!(rooms.len() > 5, "the rooms were not found: {rooms:?}");
    let rooms = Arrows(rooms);
    super::assert_none(rooms.circles().iter().map(|circle| rooms.within(circle).join("\n")).collect());
}

#[cfg(test)]
mod tests {
    use super::*;

    fn found(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<SourceFile> = files
            .iter()
            .map(|(place, text)| SourceFile { place: (*place).to_owned(), text: (*text).to_owned() })
            .collect();
        let circles = Arrows::between(&files).circles();
        circles.into_iter().map(|circle| circle.into_iter().collect::<Vec<_>>().join(" ")).collect()
    }

    #[test]
    fn circles_are_found_in_every_form_of_a_path() {
        let a = ("x/a.rs", "pub struct A; use super::b::B;");
        let tree = ("x/mod.rs", "mod a; mod b; mod c;");
        for b in [
            "pub struct B; use super::a::A;",
            "pub struct B; use crate::x::{a::{self, A as Other}, c};",
            "pub struct B; use super::a; fn f() { a::A; }",
            "pub struct B; fn f(_: super::a::A) {}",
            "pub struct B; use super::a::*; fn f(_: A) {}",
            "pub struct B; fn f() { crate::x::a::A::new() }",
        ] {
            assert_eq!(found(&[tree, a, ("x/b.rs", b)]), ["x/a x/b"], "{b}");
        }
        let three = [("x/b.rs", "pub struct B; use super::c::C;"), ("x/c.rs", "pub enum C {} use super::a::A;")];
        assert_eq!(found(&[tree, a, three[0], three[1]]), ["x/a x/b x/c"]);
        let parent = [("x/mod.rs", "mod a; pub struct T; fn f() { a::g() }"), ("x/a.rs", "pub fn g(_: super::T) {}")];
        assert_eq!(found(&parent), ["x x/a"]);
    }

    #[test]
    fn circles_are_found_through_re_exports() {
        let a = ("x/a.rs", "pub struct A; use super::B;");
        for tree in ["mod a; mod b; pub use b::B; pub use a::A;", "mod a; mod b; pub use b::*; pub use a::A as A;"] {
            let files = [("x/mod.rs", tree), a, ("x/b.rs", "pub struct B; use crate::x::A;")];
            assert_eq!(found(&files), ["x/a x/b"], "{tree}");
        }
        let private = [("x/mod.rs", "mod a; mod b; use b::B;"), a, ("x/b.rs", "pub struct B; use super::a::A;")];
        assert_eq!(found(&private), ["x/a x/b"]);
    }

    #[test]
    fn what_points_one_way_is_no_circle() {
        let tree = ("x/mod.rs", "//! See [`a::A`].\nmod a; mod b; pub use a::A; pub use b::B; pub struct Low;");
        let a = ("x/a.rs", "pub struct A; use super::{B, Low}; use std::{a, x::b};");
        let others = [
            "pub struct B; #[cfg(test)] mod tests { use super::super::A; }",
            "pub struct B; // super::a::A\nconst TEXT: &str = \"super::a::A\";",
            "pub struct B; use super::Low; use maud::maud; fn f(b: T) { b.a::<u8>(); maud::x(); self::g() } fn g() {}",
            "pub struct B; fn f(a: u8) -> T { T { a: a } }",
        ];
        for b in others {
            assert_eq!(found(&[tree, a, ("x/b.rs", b)]), [""; 0], "{b}");
        }
        let same_name = ("x/mod.rs", "mod b; pub use b::{B, b}; pub struct Low;");
        assert_eq!(found(&[same_name, ("x/b.rs", "pub struct B; pub fn b(_: super::Low) {}")]), [""; 0]);
    }
}
