//! The binaries that are looked into at all, and the versions of the interface that fit.

use proptest::prelude::*;

use super::super::weigh::tests::{module, section};
use super::*;

#[test]
fn a_version_fits_one_of_the_same_track() {
    for (offered, asked, fits) in [
        ("a@0.1.0", "a@0.1.0", true),
        ("a@0.1.0", "a@0.1.7", true),
        ("a@0.1.3", "a@0.1.0", true),
        ("a@0.1.0", "a@0.2.0", false),
        ("a@0.1.0", "a@1.1.0", false),
        ("a@1.2.0", "a@1.9.9", true),
        ("a@1.2.0", "a@2.0.0", false),
        ("a@0.1.0", "a", false),
        ("a", "a", true),
    ] {
        assert_eq!(compatible(offered, asked), fits, "{offered} for {asked}");
    }
    for (name, plain) in [("a:b/c@0.1.0", "a:b/c"), ("a:b/c", "a:b/c"), ("", "")] {
        assert_eq!(strip_version(name), plain);
    }
}

fn fault(wasm: &[u8]) -> String {
    let looked = look(wasm);
    assert!(!looked.describes, "nothing is run of what was not understood");
    looked.faults.iter().map(ToString::to_string).collect()
}

#[test]
fn what_is_no_component_is_told_what_it_is() {
    let header = b"\0asm\x0d\0\x01\0";
    for (wasm, word) in [
        (&b""[..], "not a WebAssembly component"),
        (b"hello", "not a WebAssembly component"),
        (b"\0asm", "not a WebAssembly component"),
        (b"\0asm\x01\0\0\0", "core WebAssembly module"),
        (b"\x7fELF\x02\x01\x01\0", "not a WebAssembly component"),
    ] {
        assert!(fault(wasm).contains(word), "{wasm:?}: {}", fault(wasm));
    }
    // A section that ends behind the file, and one that nobody knows.
    for tail in [&[1, 200, 1][..], &[99, 0]] {
        assert!(!fault(&[header, tail].concat()).is_empty(), "{tail:?}");
    }
    let empty = fault(header);
    assert!(empty.contains("export describe") && empty.contains("it is missing"), "{empty}");
    assert!(empty.contains("export handle") && empty.contains("export react"), "{empty}");
}

#[test]
fn a_component_is_weighed_before_anything_else_is_made_of_it() {
    let wrap = |module: &[u8]| [&b"\0asm\x0d\0\x01\0"[..], &section(1, module)].concat();
    let fault = fault(&wrap(&module(1, 511, 20_000)));
    assert!(fault.contains("branches times locals; at most 2000000"), "{fault}");
    for (functions, is_small) in [(1, true), (10, false)] {
        let looked = look(&wrap(&module(functions, 300, 1_500)));
        assert_eq!(looked.weight.is_small(), is_small, "{functions}: {:?}", looked.faults);
    }
}

proptest! {
    #[test]
    fn no_bytes_make_a_look_panic(tail in prop::collection::vec(any::<u8>(), 0..200)) {
        for header in [&b"\0asm\x0d\0\x01\0"[..], b"\0asm\x01\0\0\0", b""] {
            let looked = look(&[header, &tail].concat());
            prop_assert!(!looked.faults.is_empty(), "nothing of this is a primitive");
        }
    }
}
