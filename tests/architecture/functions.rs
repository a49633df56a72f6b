//! Checks the length of functions, and the types of their parameters.

use super::{SourceFile, assert_none, code::Token, product_code, read_crates};

/// Functions that take a tuple, where a struct would name its parts, because a trait of another crate asks for it.
const TUPLES_LEFT: &[&str] = &["report/axis.rs: map"];

/// Maximum number of lines from `fn` to the closing brace.
const LINES_MAX: usize = 60;

/// A function in the source.
struct Function<'a> {
    name: &'a str,
    /// The tokens between the brackets.
    parameters: &'a [Token],
    lines: usize,
}

/// Returns the functions in this code. A function without a body has no lines.
fn functions(tokens: &[Token]) -> Vec<Function<'_>> {
    let begins = (0..tokens.len()).filter(|index| tokens[*index] == "fn");
    begins.filter_map(|begin| function_at(&tokens[begin..])).collect()
}

/// Returns the number of functions in this code.
pub fn functions_in(tokens: &[Token]) -> usize {
    functions(tokens).len()
}

fn function_at(tokens: &[Token]) -> Option<Function<'_>> {
    let name = tokens.get(1).filter(|name| name.is_word())?.as_str();
    let open = end_of_generics(tokens, 2);
    let close = open + closing(&tokens[open..])?;
    let mut index = close + 1;
    // `;` also occurs within brackets: `[u8; 4]`.
    while !matches!(tokens.get(index)?.as_str(), "{" | ";") {
        let is_bracket = matches!(tokens[index].as_str(), "(" | "[");
        index += if is_bracket { closing(&tokens[index..])? } else { 0 } + 1;
    }
    let end = if tokens[index] == "{" { index + closing(&tokens[index..])? } else { index };
    let lines = if tokens[index] == "{" { tokens[end].line - tokens[0].line + 1 } else { 0 };
    Some(Function { name, parameters: &tokens[open + 1..close], lines })
}

/// Returns the index after `<..>`, if generics are there. The `>` of `->` closes nothing.
fn end_of_generics(tokens: &[Token], begin: usize) -> usize {
    let mut depth = 0;
    for (index, token) in tokens.iter().enumerate().skip(begin) {
        match token.as_str() {
            "<" => depth += 1,
            ">" if tokens[index - 1] != "-" => depth -= 1,
            _ => {}
        }
        if depth == 0 {
            return if index == begin { begin } else { index + 1 };
        }
    }
    tokens.len()
}

/// Returns the index of the bracket that closes the first bracket.
fn closing(tokens: &[Token]) -> Option<usize> {
    let mut depth = 0;
    tokens.iter().position(|token| {
        match token.as_str() {
            "(" | "[" | "{" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            _ => {}
        }
        depth == 0
    })
}

/// Returns whether a parameter's type is a tuple, or a reference to a tuple. `()` does not count.
fn has_tuple(parameters: &[Token]) -> bool {
    let mut depth = 0;
    parameters.iter().enumerate().any(|(index, token)| {
        match token.as_str() {
            "(" | "[" | "{" | "<" => depth += 1,
            ")" | "]" | "}" => depth -= 1,
            ">" if parameters[index - 1] != "-" => depth -= 1,
            ":" if depth == 0 => return is_tuple(&parameters[index + 1..]),
            _ => {}
        }
        false
    })
}

fn is_tuple(kind: &[Token]) -> bool {
    let is_reference = kind.first().is_some_and(|sign| sign == "&");
    let kind = &kind[usize::from(is_reference)..];
    // `&'a mut (A, B)`: the quote of a lifetime is no token.
    let words = kind.iter().take_while(|token| is_reference && token.is_word()).count();
    let is_bound = kind[..words].iter().any(|word| *word == "impl" || *word == "dyn");
    let kind = &kind[words..];
    // Brackets around `impl A + B` are no tuple; a comma makes a tuple.
    let inside = closing(kind).filter(|_| !is_bound && kind[0] == "(").map_or(&[][..], |end| &kind[1..end]);
    let mut depth = 0;
    inside.iter().any(|token| {
        depth +=
            i32::from(["(", "[", "<"].contains(&token.as_str())) - i32::from([")", "]", ">"].contains(&token.as_str()));
        depth == 0 && *token == ","
    })
}

/// Returns place and name of each function that satisfies the predicate.
fn named(files: &[SourceFile], is_so: impl Fn(&Function<'_>) -> bool) -> Vec<String> {
    let of_file = |(file, tokens): (&SourceFile, Vec<Token>)| {
        let found = functions(&tokens).into_iter().filter(|function| is_so(function));
        found.map(|function| format!("{}: {}", file.place, function.name)).collect::<Vec<_>>()
    };
    product_code(files).into_iter().flat_map(of_file).collect()
}

fn long_functions(files: &[SourceFile]) -> Vec<String> {
    named(files, |function| function.lines > LINES_MAX)
}

fn tuple_takers(files: &[SourceFile]) -> Vec<String> {
    named(files, |function| has_tuple(function.parameters))
}

/// Asserts that the functions found are exactly those in the list of exceptions.
fn compare(found: &[String], left: &[&str], what: &str) {
    let new = found.iter().filter(|name| !left.contains(&name.as_str())).map(|name| format!("{name}: {what}"));
    let gone = left.iter().filter(|name| !found.iter().any(|found| found == *name));
    assert_none(new.chain(gone.map(|name| format!("{name}: take it off the list; it is mended"))).collect());
}

#[test]
fn functions_are_short() {
    compare(&long_functions(&read_crates()), &[], &format!("longer than {LINES_MAX} lines"));
}

#[test]
fn parameters_are_no_tuples() {
    compare(&tuple_takers(&read_crates()), TUPLES_LEFT, "takes a tuple; a struct has names");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> Vec<SourceFile> {
        vec![SourceFile { place: "x/a.rs".to_owned(), text: text.to_owned() }]
    }

    #[test]
    fn lines_are_counted_from_fn_to_the_closing_brace() {
        let long = |head: &str, lines: usize| {
            let text =
                format!("use b;\n/// Says.\n#[inline]\n{head} {{\n{}}}\nfn g() {{}}\n", "    {x();}\n".repeat(lines));
            long_functions(&file(&text))
        };
        for head in ["pub fn f()", "async fn f<F: Fn() -> [u8; 4]>(f: F) -> [u8; 4]", "fn f(x: &str) -> T<[u8; 2]>"] {
            assert_eq!(long(head, LINES_MAX - 2), [""; 0], "{head}");
            assert_eq!(long(head, LINES_MAX - 1), ["x/a.rs: f"], "{head}");
        }
        assert_eq!(long("#[cfg(test)] fn f()", LINES_MAX), [""; 0]);
        let within = format!("trait T {{\n fn none(&self);\n{}}}", "    const X: u8 = 1;\n".repeat(LINES_MAX));
        assert_eq!(long_functions(&file(&within)), [""; 0]);
        let raw = format!("fn f() {{ let a = r#\"\n{}\"#; }}", "text }\n".repeat(LINES_MAX));
        assert_eq!(long_functions(&file(&raw)), ["x/a.rs: f"]);
    }

    #[test]
    fn tuples_are_found_and_nothing_else() {
        for taker in [
            "fn f(a: (A, B)) {}",
            "fn f(&self, x: u8, (a, b): (&A, Option<B>)) -> C;",
            "async fn f<T: Fn(u8) -> (A, B)>(t: T, a: &(A, B)) {}",
            "fn f(a: &'a mut (A, B)) {}",
        ] {
            assert_eq!(tuple_takers(&file(taker)), ["x/a.rs: f"], "{taker}");
        }
        for other in [
            "fn f(a: ()) -> (A, B) { let g = |(a, b): (A, B)| a; g((a, b)) }",
            "fn f(a: &[(A, B)], b: impl Fn((A, B)) -> (A, B), c: Vec<(A, B)>, S { d, .. }: S) {}",
            "fn f(a: &mut (impl Read + Seek), b: &(dyn Error + 'static)) {}",
            "struct S { f: fn(a: (A, B)) } fn f() { x(y: (A, B)) }",
            "#[cfg(test)] fn f(a: (A, B)) {}",
        ] {
            assert_eq!(tuple_takers(&file(other)), [""; 0], "{other}");
        }
    }
}
