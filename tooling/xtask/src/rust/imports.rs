//! The imports between the files of a crate: by each `use` and each path in the code, followed
//! through what other files pass on with a `use` of their own.
//!
//! Knows names and files, not types: a method that is called imports nothing.

use std::collections::{BTreeMap, BTreeSet};

use super::{Code, Kind, Token};

/// A module's path within its crate; empty for the root.
pub type Module = Vec<String>;

/// Files of one crate by their modules, and the files that each imports.
pub type Graph = BTreeMap<Module, BTreeSet<Module>>;

/// How often a name may be passed on before it is followed no further.
const PASSED_ON_MAX: usize = 12;

/// The module of a file below `src/`.
pub fn module(path: &str) -> Module {
    let path = path.trim_end_matches(".rs");
    match path {
        "lib" | "main" => Vec::new(),
        path => path.split('/').map(str::to_owned).collect(),
    }
}

/// The imports among the files of one crate: paths below `src/`, and what they hold. A binary
/// beside a library is a crate of its own.
pub fn graph(files: &[(&str, &str)]) -> Graph {
    let is_library = files.iter().any(|(path, _)| *path == "lib.rs");
    let files = files.iter().filter(|(path, _)| !is_library || *path != "main.rs");
    let codes: Vec<_> = files.map(|(path, text)| (module(path), Code::of(text))).collect();
    let tests = tests(codes.iter().map(|(module, code)| (module.as_slice(), code)));
    let mut sources: BTreeMap<Module, Source<'_>> =
        codes.iter().map(|(module, code)| (module.clone(), Source::of(code))).collect();
    sources.retain(|module, _| !tests.iter().any(|test| module.starts_with(test)));
    let known = Sources(sources);
    let imports = |(module, source): (&Module, &Source<'_>)| {
        let found = source.paths.iter().filter_map(|path| known.file_of(module, path, 0));
        (module.clone(), found.filter(|other| other != module).collect())
    };
    known.0.iter().map(imports).collect()
}

/// The modules of a crate that are tests in files of their own; what lies below one is one too.
pub fn tests<'a>(codes: impl Iterator<Item = (&'a [String], &'a Code<'a>)>) -> Vec<Module> {
    let of = |(module, code): (&[String], &Code<'_>)| {
        let names = code.test_modules.iter();
        names.map(|name| [module, &[(*name).to_owned()]].concat()).collect::<Vec<_>>()
    };
    codes.flat_map(of).collect()
}

/// The names in one file.
#[derive(Default)]
struct Source<'a> {
    /// Every path, as it is written.
    paths: Vec<Vec<&'a str>>,
    /// The paths that each name of a `use` stands for.
    names: BTreeMap<&'a str, Vec<&'a str>>,
}

impl<'a> Source<'a> {
    fn of(code: &Code<'a>) -> Self {
        let tokens: Vec<_> =
            code.tokens.iter().filter(|token| !token.is_comment()).copied().collect();
        let mut source = Self::default();
        let mut at = 0;
        while at < tokens.len() {
            if tokens[at].text == "use" && tokens[at].kind == Kind::Word {
                at = source.tree(&tokens, at + 1, &[]);
            } else {
                at = source.path(&tokens, at);
            }
        }
        source
    }

    /// One tree of a `use`; answers what follows it.
    fn tree(&mut self, tokens: &[Token<'a>], mut at: usize, prefix: &[&'a str]) -> usize {
        let mut path = prefix.to_vec();
        while let Some(token) = tokens.get(at) {
            at += 1;
            match token.text {
                "{" => {
                    while tokens.get(at).is_some_and(|token| token.text != "}") {
                        at = self.tree(tokens, at, &path);
                        at += usize::from(tokens.get(at).is_some_and(|token| token.text == ","));
                    }
                    return at + 1;
                }
                "*" => {
                    self.paths.push(path);
                    return at;
                }
                "::" if path.is_empty() => continue,
                name => path.push(name),
            }
            if tokens.get(at).is_some_and(|token| token.text == "::") {
                at += 1;
                continue;
            }
            break;
        }
        if path.last() == Some(&"self") && path.len() > 1 {
            path.pop();
        }
        let Some(mut name) = path.last().copied() else { return at };
        if tokens.get(at).is_some_and(|token| token.text == "as") {
            name = tokens.get(at + 1).map_or(name, |token| token.text);
            at += 2;
        }
        self.names.insert(name, path.clone());
        self.paths.push(path);
        at
    }

    /// A path of the code, where one begins here; answers what follows it.
    fn path(&mut self, tokens: &[Token<'a>], mut at: usize) -> usize {
        let is_word = |at: usize| tokens.get(at).is_some_and(|token| token.kind == Kind::Word);
        let is_joined = |at: usize| tokens.get(at).is_some_and(|token| token.text == "::");
        if !is_word(at) || !is_joined(at + 1) || (at > 0 && is_joined(at - 1)) {
            return at + 1;
        }
        let mut path = vec![tokens[at].text];
        while is_joined(at + 1) && is_word(at + 2) {
            path.push(tokens[at + 2].text);
            at += 2;
        }
        self.paths.push(path);
        at + 1
    }
}

struct Sources<'a>(BTreeMap<Module, Source<'a>>);

impl Sources<'_> {
    /// The file that a path leads to, as it is written in the file of `module`; nothing where it
    /// leads out of the crate.
    fn file_of(&self, module: &[String], path: &[&str], passed_on: usize) -> Option<Module> {
        if passed_on > PASSED_ON_MAX {
            return None;
        }
        let mut file = module.to_vec();
        let mut rest = path;
        match *path.first()? {
            "crate" => (file, rest) = (Vec::new(), &path[1..]),
            "self" => rest = &path[1..],
            "super" => {
                while rest.first() == Some(&"super") {
                    file.pop();
                    rest = &rest[1..];
                }
            }
            name if self.has(&file, name) => {}
            name => {
                let means = self.0.get(module)?.names.get(name)?;
                if means.first() == Some(&name) {
                    return None;
                }
                let whole = [means.as_slice(), &path[1..]].concat();
                return self.file_of(module, &whole, passed_on + 1);
            }
        }
        while let Some((name, after)) = rest.split_first() {
            if self.has(&file, name) {
                file.push((*name).to_owned());
                rest = after;
                continue;
            }
            let Some(means) = self.0.get(&file).and_then(|source| source.names.get(name)) else {
                break;
            };
            if !self.leads_on(&file, means) {
                return None;
            }
            let whole = [means.as_slice(), after].concat();
            return self.file_of(&file, &whole, passed_on + 1);
        }
        self.0.contains_key(&file).then_some(file)
    }

    fn has(&self, module: &[String], child: &str) -> bool {
        self.0.contains_key(&[module, &[child.to_owned()]].concat())
    }

    /// Whether what a name of a file stands for is in the crate.
    fn leads_on(&self, file: &[String], means: &[&str]) -> bool {
        let Some(first) = means.first() else { return false };
        ["crate", "self", "super"].contains(first)
            || self.has(file, first)
            || (means.len() > 1
                && self.0.get(file).is_some_and(|source| source.names.contains_key(first)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn imports(files: &[(&str, &str)], of: &str) -> Vec<String> {
        let found = graph(files);
        found[&module(of)].iter().map(|module| module.join("/")).collect()
    }

    #[test]
    fn uses_and_paths_lead_to_files() {
        let files = [
            ("lib.rs", "mod a; mod b; pub use b::c::Deep;"),
            ("a.rs", "use crate::b::{self, c::Deep as D}; fn f() { b::here(); }"),
            ("b.rs", "pub mod c; fn here() { super::a::f(); }"),
            ("b/c.rs", "use std::fmt; use super::here; pub struct Deep; fn g() { crate::a::f() }"),
        ];
        assert_eq!(imports(&files, "lib.rs"), ["b/c"]);
        assert_eq!(imports(&files, "a.rs"), ["b", "b/c"]);
        assert_eq!(imports(&files, "b.rs"), ["a"]);
        assert_eq!(imports(&files, "b/c.rs"), ["a", "b"]);
    }

    #[test]
    fn what_is_passed_on_is_imported_from_where_it_is() {
        let files = [
            ("lib.rs", "mod a; mod b; mod c; pub use c::Kept; pub use std::fmt::Debug;"),
            ("a.rs", "use crate::b::Kept; use crate::Debug; fn f() { Kept::new() }"),
            ("b.rs", "pub(crate) use crate::c::*; pub use crate::Kept;"),
            ("c.rs", "pub struct Kept;"),
        ];
        assert_eq!(imports(&files, "a.rs"), ["c"]);
        assert_eq!(imports(&files, "b.rs"), ["c"]);
    }

    #[test]
    fn tests_import_nothing() {
        let files = [
            ("lib.rs", "mod a; #[cfg(test)] mod checks;"),
            ("a.rs", "#[cfg(test)] mod tests { use crate::checks; }"),
            ("checks.rs", "use crate::a;"),
        ];
        let found = graph(&files);
        assert_eq!(found.len(), 2);
        assert_eq!(imports(&files, "a.rs"), Vec::<String>::new());
    }
}
