//! The faults that an author is told of a function that differs from the interface's: each part,
//! and where.

use wasmparser::{Validator, types::Types};

use super::*;

const U32: u8 = 0x79;
const STRING: u8 = 0x73;

/// Texts and types as WebAssembly writes them, all of them short.
fn label(name: &str) -> Vec<u8> {
    [&[u8::try_from(name.len()).unwrap()], name.as_bytes()].concat()
}

fn list(items: &[Vec<u8>]) -> Vec<u8> {
    [vec![u8::try_from(items.len()).unwrap()], items.concat()].concat()
}

fn members(of: &[(&str, u8)]) -> Vec<u8> {
    list(&of.iter().map(|(name, ty)| [label(name), vec![*ty]].concat()).collect::<Vec<_>>())
}

fn function(parameters: &[(&str, u8)], result: Option<u8>) -> Vec<u8> {
    let result = result.map_or(vec![1, 0], |ty| vec![0, ty]);
    [vec![0x40], members(parameters), result].concat()
}

fn record(fields: &[(&str, u8)]) -> Vec<u8> {
    [vec![0x72], members(fields)].concat()
}

fn variant(cases: &[(&str, Option<u8>)]) -> Vec<u8> {
    let case = |(name, ty): &(&str, Option<u8>)| {
        let ty = ty.map_or(vec![0], |ty| vec![1, ty]);
        [label(name), ty, vec![0]].concat()
    };
    [vec![0x71], list(&cases.iter().map(case).collect::<Vec<_>>())].concat()
}

fn names(kind: u8, of: &[&str]) -> Vec<u8> {
    [vec![kind], list(&of.iter().map(|name| label(name)).collect::<Vec<_>>())].concat()
}

/// A component that declares these types, in order.
fn component(types: &[Vec<u8>]) -> Types {
    let content = list(types);
    let mut wasm = b"\0asm\x0d\0\x01\0".to_vec();
    wasm.extend([7, u8::try_from(content.len()).unwrap()]);
    wasm.extend(content);
    Validator::new().validate_all(&wasm).unwrap()
}

fn differences(expected: &[Vec<u8>], found: &[Vec<u8>]) -> Vec<String> {
    let (expected, found) = (component(expected), component(found));
    let last = |types: &Types| {
        let types = types.as_ref();
        let at = types.component_type_count() - 1;
        match types.component_any_type_at(at) {
            ComponentAnyTypeId::Func(id) => id,
            other => panic!("{other:?}"),
        }
    };
    let (wanted, given) = (last(&expected), last(&found));
    let side = |types| Side::new(types, std::iter::empty());
    functions((&side(expected.as_ref()), wanted), (&side(found.as_ref()), given))
}

/// A function that takes the one type before it.
fn takes(ty: Vec<u8>) -> Vec<Vec<u8>> {
    vec![ty, function(&[("a", 0)], None)]
}

#[test]
fn equal_functions_do_not_differ() {
    for types in [
        vec![function(&[], None)],
        vec![function(&[("a", U32), ("b", STRING)], Some(U32))],
        takes(record(&[("x", U32)])),
        takes(variant(&[("x", Some(U32)), ("y", None)])),
        takes(names(0x6d, &["x", "y"])),
        takes(vec![0x6a, 1, U32, 0]),
    ] {
        assert_eq!(differences(&types, &types), [""; 0]);
    }
}

#[test]
fn parameters_and_results_are_compared_one_by_one() {
    let one = |name: &str, ty: u8| vec![function(&[(name, ty)], None)];
    let answers = |ty| vec![function(&[], ty)];
    for (expected, found, told) in [
        (one("a", U32), one("a", STRING), vec!["parameter `a` must be u32, not string"]),
        (one("a", U32), one("b", U32), vec!["parameter `a` is called `b`"]),
        (
            one("a", U32),
            one("b", STRING),
            vec!["parameter `a` is called `b`", "parameter `a` must be u32, not string"],
        ),
        (one("a", U32), answers(None), vec!["it takes 1 parameters, not 0"]),
        (answers(Some(U32)), answers(None), vec!["its result must be u32, and there is none"]),
        (answers(None), answers(Some(U32)), vec!["its result must be nothing, not u32"]),
        (answers(Some(U32)), answers(Some(STRING)), vec!["its result must be u32, not string"]),
    ] {
        assert_eq!(differences(&expected, &found), told);
    }
}

#[test]
fn a_shape_differs_at_its_member() {
    let tuple = |types: &[u8]| {
        [vec![0x6f], list(&types.iter().map(|ty| vec![*ty]).collect::<Vec<_>>())].concat()
    };
    for (expected, found, told) in [
        (
            record(&[("x", U32), ("y", STRING)]),
            record(&[("x", STRING), ("z", U32)]),
            vec![
                "parameter `a`, field `x` must be u32, not string",
                "parameter `a` lacks the field `y: string`",
                "parameter `a` has the field `z`, which the interface does not know",
            ],
        ),
        (
            record(&[("x", U32), ("y", U32)]),
            record(&[("y", U32), ("x", U32)]),
            vec!["parameter `a` has its fields in another order"],
        ),
        (
            variant(&[("x", Some(U32)), ("y", None)]),
            variant(&[("x", None), ("z", None)]),
            vec![
                "parameter `a`, case `x` must be u32, and there is none",
                "parameter `a` lacks the case `y`",
                "parameter `a` has the case `z`, which the interface does not know",
            ],
        ),
        (
            names(0x6d, &["x", "y"]),
            names(0x6d, &["y", "x"]),
            vec!["parameter `a` must be enum {x, y}, not enum {y, x}"],
        ),
        (
            names(0x6e, &["x"]),
            names(0x6d, &["x"]),
            vec!["parameter `a` must be flags {x}, not enum {x}"],
        ),
        (
            vec![0x70, U32],
            vec![0x70, STRING],
            vec!["parameter `a`, each item must be u32, not string"],
        ),
        (vec![0x6b, U32], vec![0x6b, STRING], vec!["parameter `a` must be u32, not string"]),
        (
            vec![0x6b, U32],
            vec![0x70, U32],
            vec!["parameter `a` must be option<u32>, not list<u32>"],
        ),
        (
            tuple(&[U32, U32]),
            tuple(&[U32, STRING]),
            vec!["parameter `a`, member 1 must be u32, not string"],
        ),
        (
            tuple(&[U32]),
            tuple(&[U32, STRING]),
            vec!["parameter `a` must be tuple<u32>, not tuple<u32, string>"],
        ),
        (
            vec![0x6a, 1, U32, 1, STRING],
            vec![0x6a, 0, 1, U32],
            vec![
                "parameter `a`, where it succeeds must be u32, and there is none",
                "parameter `a`, where it fails must be string, not u32",
            ],
        ),
    ] {
        assert_eq!(differences(&takes(expected), &takes(found)), told);
    }
}

#[test]
fn a_type_within_a_type_is_named_by_its_place() {
    let nested = |ty: u8| {
        let inner = record(&[("x", ty)]);
        vec![inner, vec![0x70, 0], record(&[("all", 1)]), function(&[("a", 2)], None)]
    };
    let told = ["parameter `a`, field `all`, each item, field `x` must be u32, not string"];
    assert_eq!(differences(&nested(U32), &nested(STRING)), told);
}
