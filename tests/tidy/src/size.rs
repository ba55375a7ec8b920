//! Length of files and functions, and the number of parameters.

use quote::ToTokens;
use syn::spanned::Spanned;
use syn::visit::{self, Visit};
use syn::{FnArg, Signature, Type};

use crate::Finding;
use crate::source::SourceFile;

/// A file may have this many lines.
pub const FILE_LINES: usize = 600;
/// A function may have this many lines, from its signature to its closing brace.
pub const FUNCTION_LINES: usize = 70;
/// A function may take this many values beside `self`. A tuple counts as its parts, but for one of equal numbers: that is a
/// point or a range.
pub const PARAMETERS: usize = 5;

/// Files longer than [`FILE_LINES`].
pub fn long_file(file: &SourceFile) -> Option<Finding> {
    let lines = file.text.lines().count();
    (lines > FILE_LINES).then(|| Finding {
        at: file.path.clone(),
        value: lines,
        message: format!(
            "{}: {lines} lines (limit {FILE_LINES}): a file of this length is about more than one thing; split it by nouns",
            file.path
        ),
    })
}

/// Functions longer than [`FUNCTION_LINES`].
pub fn long_functions(file: &SourceFile) -> Vec<Finding> {
    let mut found = Vec::new();
    for function in functions(file).iter().filter(|function| function.lines > FUNCTION_LINES) {
        found.push(Finding {
            at: function.at.clone(),
            value: function.lines,
            message: format!(
                "{}: {} lines (limit {FUNCTION_LINES}): a reader cannot hold it at once; give its steps names",
                function.at, function.lines
            ),
        });
    }
    found
}

/// Functions with more than [`PARAMETERS`] parameters.
pub fn many_parameters(file: &SourceFile) -> Vec<Finding> {
    let mut found = Vec::new();
    for function in functions(file).iter().filter(|function| function.parameters > PARAMETERS) {
        found.push(Finding {
            at: function.at.clone(),
            value: function.parameters,
            message: format!(
                "{}: {} parameters (limit {PARAMETERS}, a tuple counts as its parts): a call cannot be read without the \
                 declaration; give a struct with named fields",
                function.at, function.parameters
            ),
        });
    }
    found
}

struct Function {
    at: String,
    lines: usize,
    parameters: usize,
}

fn functions(file: &SourceFile) -> Vec<Function> {
    let mut visitor = Functions { path: &file.path, owner: None, is_of_trait: false, found: Vec::new() };
    visitor.visit_file(&file.syntax);
    visitor.found
}

struct Functions<'a> {
    path: &'a str,
    /// Type whose `impl` is being walked.
    owner: Option<String>,
    /// It implements a trait, which decides about the parameters; they are counted where the trait is declared.
    is_of_trait: bool,
    found: Vec<Function>,
}

impl Functions<'_> {
    fn note(&mut self, signature: &Signature, whole: proc_macro2::Span) {
        let name = match &self.owner {
            Some(owner) => format!("{owner}::{}", signature.ident),
            None => signature.ident.to_string(),
        };
        let first = signature.span().start().line;
        self.found.push(Function {
            at: format!("{}::{name}", self.path),
            lines: whole.end().line + 1 - first,
            parameters: if self.is_of_trait { 0 } else { signature.inputs.iter().map(parts_of).sum() },
        });
    }
}

fn parts_of(argument: &FnArg) -> usize {
    match argument {
        FnArg::Receiver(_) => 0,
        FnArg::Typed(argument) => match &*argument.ty {
            Type::Tuple(tuple) if is_point(tuple) => 1,
            Type::Tuple(tuple) => tuple.elems.len(),
            _ => 1,
        },
    }
}

/// Whether all parts are numbers of one type.
fn is_point(tuple: &syn::TypeTuple) -> bool {
    let names: Vec<String> = tuple.elems.iter().map(|part| part.to_token_stream().to_string()).collect();
    let is_number = |name: &String| ["i32", "i64", "u32", "u64", "usize", "f64"].contains(&name.as_str());
    names.first().is_some_and(is_number) && names.iter().all(|name| *name == names[0])
}

impl<'ast> Visit<'ast> for Functions<'_> {
    fn visit_item_fn(&mut self, item: &'ast syn::ItemFn) {
        self.note(&item.sig, item.span());
        visit::visit_item_fn(self, item);
    }

    fn visit_item_impl(&mut self, item: &'ast syn::ItemImpl) {
        let name = match &*item.self_ty {
            Type::Path(path) => path.path.segments.last().map(|segment| segment.ident.to_string()),
            _ => None,
        };
        let before = (self.owner.take(), self.is_of_trait);
        (self.owner, self.is_of_trait) = (name, item.trait_.is_some());
        visit::visit_item_impl(self, item);
        (self.owner, self.is_of_trait) = before;
    }

    fn visit_impl_item_fn(&mut self, item: &'ast syn::ImplItemFn) {
        self.note(&item.sig, item.span());
        visit::visit_impl_item_fn(self, item);
    }

    fn visit_trait_item_fn(&mut self, item: &'ast syn::TraitItemFn) {
        self.note(&item.sig, item.span());
        visit::visit_trait_item_fn(self, item);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(text: &str) -> SourceFile {
        SourceFile {
            path: "a.rs".into(),
            krate: "made".into(),
            module: None,
            text: text.into(),
            syntax: syn::parse_file(text).expect("Rust"),
        }
    }

    #[test]
    fn a_tuple_counts_as_its_parts_and_self_not_at_all() {
        let made = file(
            "struct A; impl A { fn f(&self, (a, b, c): (A, &str, u8), d: u8, e: u8, g: (i32, i32)) {} }",
        );
        let found = many_parameters(&made);
        assert_eq!((found[0].at.as_str(), found[0].value), ("a.rs::A::f", 6));
        assert!(many_parameters(&file("fn f(a: (f64, f64), b: u8, c: u8, d: u8, e: u8) {}")).is_empty());
    }

    #[test]
    fn a_trait_decides_about_the_parameters_of_those_that_implement_it() {
        let six = "a: u8, b: u8, c: u8, d: u8, e: u8, f: u8";
        assert!(many_parameters(&file(&format!("impl T for A {{ fn f({six}) {{}} }}"))).is_empty());
        assert_eq!(many_parameters(&file(&format!("trait T {{ fn f({six}); }}"))).len(), 1);
    }

    #[test]
    fn lines_are_counted_from_the_signature_to_the_brace() {
        let body = |lines: usize| format!("/// Said.\nfn f() {{\n{}}}\n", "    g();\n".repeat(lines));
        assert!(long_functions(&file(&body(68))).is_empty());
        assert_eq!(long_functions(&file(&body(69)))[0].value, 71);
    }
}
