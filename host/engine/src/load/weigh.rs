//! The cost of compiling a component, read from its code before a compiler sees it.
//!
//! The compiler looks at each local at each place where control flow meets: its time and memory go
//! with their product, and a small file can make that as large as it likes. The bounds leave an
//! interpreter of a whole language several times the room that it needs.

use wasmparser::{BinaryReaderError, FunctionBody, Operator, Parser, Payload};

/// Places where control flow parts or meets, times locals, in one function.
const JOINTS_MAX: u64 = 2_000_000;
/// The same, over all functions.
const ALL_JOINTS_MAX: u64 = 20_000_000;
/// Operators of one function.
const OPERATORS_MAX: u64 = 500_000;
/// The same, over all functions.
const ALL_OPERATORS_MAX: u64 = 10_000_000;
/// Functions of all modules.
const FUNCTIONS_MAX: u64 = 100_000;
/// Core modules and nested components.
const MODULES_MAX: u64 = 200;
/// Types, imports, exports, aliases and instances of all modules and components.
const ITEMS_MAX: u64 = 500_000;

/// Up to here a component is small: it is compiled beside a large one.
const SMALL_JOINTS_MAX: u64 = 4_000_000;
const SMALL_OPERATORS_MAX: u64 = 1_000_000;

/// The code that there is to compile.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Weight {
    joints: u64,
    operators: u64,
    functions: u64,
    modules: u64,
    items: u64,
}

impl Weight {
    /// Whether it is compiled in a moment.
    pub(crate) fn is_small(&self) -> bool {
        self.joints <= SMALL_JOINTS_MAX && self.operators <= SMALL_OPERATORS_MAX
    }
}

/// The weight of a component.
///
/// # Errors
/// The first bound that it passes, with the figure.
pub(crate) fn weigh(wasm: &[u8]) -> Result<Weight, String> {
    let mut all = Weight::default();
    for payload in Parser::new(0).parse_all(wasm) {
        let payload = payload.map_err(word_damage)?;
        all.items += items(&payload);
        match payload {
            Payload::CodeSectionEntry(body) => {
                let (joints, operators) = function(&body).map_err(word_damage)?;
                let which = format!("the function at byte {}", body.range().start);
                require_within(joints, JOINTS_MAX, &which, "branches times locals")?;
                require_within(operators, OPERATORS_MAX, &which, "operators")?;
                all.functions += 1;
                all.joints = all.joints.saturating_add(joints);
                all.operators += operators;
            }
            Payload::ModuleSection { .. } | Payload::ComponentSection { .. } => all.modules += 1,
            _ => {}
        }
    }
    let whole = "the component";
    require_within(all.functions, FUNCTIONS_MAX, whole, "functions")?;
    require_within(all.modules, MODULES_MAX, whole, "modules")?;
    require_within(all.items, ITEMS_MAX, whole, "types, imports, exports and instances")?;
    require_within(
        all.joints,
        ALL_JOINTS_MAX,
        whole,
        "branches times locals, over all functions,",
    )?;
    require_within(all.operators, ALL_OPERATORS_MAX, whole, "operators")?;
    Ok(all)
}

fn word_damage(error: BinaryReaderError) -> String {
    format!("the component is damaged: {}", error.message())
}

fn require_within(found: u64, most: u64, whose: &str, what: &str) -> Result<(), String> {
    if found <= most {
        return Ok(());
    }
    Err(format!("{whose} has {found} {what}; at most {most} are compiled: split what it does"))
}

/// Branches times locals, and operators.
fn function(body: &FunctionBody<'_>) -> Result<(u64, u64), BinaryReaderError> {
    let mut declared = 0_u64;
    for local in body.get_locals_reader()? {
        declared += u64::from(local?.0);
    }
    // Parameters are locals that the body does not declare.
    let (mut joints, mut operators, mut highest) = (1_u64, 0_u64, 0_u64);
    for operator in body.get_operators_reader()? {
        operators += 1;
        joints += match operator? {
            Operator::Block { .. }
            | Operator::Loop { .. }
            | Operator::If { .. }
            | Operator::Else
            | Operator::End
            | Operator::Br { .. }
            | Operator::BrIf { .. }
            | Operator::Return
            | Operator::Unreachable => 1,
            Operator::BrTable { targets } => 1 + u64::from(targets.len()),
            Operator::LocalGet { local_index }
            | Operator::LocalSet { local_index }
            | Operator::LocalTee { local_index } => {
                highest = highest.max(u64::from(local_index) + 1);
                0
            }
            _ => 0,
        };
    }
    Ok((joints.saturating_mul(declared.max(highest).max(1)), operators))
}

/// The number of items that a section lists.
fn items(payload: &Payload<'_>) -> u64 {
    let count = match payload {
        Payload::TypeSection(section) => section.count(),
        Payload::ImportSection(section) => section.count(),
        Payload::ExportSection(section) => section.count(),
        Payload::GlobalSection(section) => section.count(),
        Payload::ElementSection(section) => section.count(),
        Payload::DataSection(section) => section.count(),
        Payload::InstanceSection(section) => section.count(),
        Payload::ComponentTypeSection(section) => section.count(),
        Payload::ComponentImportSection(section) => section.count(),
        Payload::ComponentExportSection(section) => section.count(),
        Payload::ComponentInstanceSection(section) => section.count(),
        Payload::ComponentAliasSection(section) => section.count(),
        Payload::ComponentCanonicalSection(section) => section.count(),
        _ => 0,
    };
    u64::from(count)
}

#[cfg(test)]
pub(super) mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A number as WebAssembly writes it (LEB128).
    fn number(mut value: usize) -> Vec<u8> {
        let mut bytes = Vec::new();
        loop {
            let low = u8::try_from(value & 0x7f).unwrap();
            value >>= 7;
            if value == 0 {
                bytes.push(low);
                return bytes;
            }
            bytes.push(low | 0x80);
        }
    }

    pub(in crate::load) fn section(id: u8, content: &[u8]) -> Vec<u8> {
        [vec![id], number(content.len()), content.to_vec()].concat()
    }

    /// A module of functions with so many locals and branches each: `(block (br_if 0 (local.get
    /// 0)))`.
    pub(in crate::load) fn module(functions: usize, locals: usize, branches: usize) -> Vec<u8> {
        let branch = [0x02, 0x40, 0x20, 0x00, 0x0d, 0x00, 0x0b];
        let declared = [vec![1], number(locals), vec![0x7f]].concat();
        let body = [declared, branch.repeat(branches), vec![0x0b]].concat();
        let one = [number(body.len()), body].concat();
        let of = |content: Vec<u8>| [number(functions), content].concat();
        [
            b"\0asm\x01\0\0\0".to_vec(),
            section(1, &[1, 0x60, 0, 0]),
            section(3, &of(vec![0; functions])),
            section(10, &of(one.repeat(functions))),
        ]
        .concat()
    }

    #[test]
    fn branches_over_locals_are_bounded_in_one_function_and_in_all() {
        let small = weigh(&module(10, 50, 100)).unwrap();
        assert_eq!((small.functions, small.joints, small.is_small()), (10, 10 * 302 * 50, true));
        let fault = weigh(&module(1, 511, 20_000)).unwrap_err();
        assert!(fault.contains("has 30661022 branches times locals; at most 2000000"), "{fault}");
        let fault = weigh(&module(30, 300, 1_500)).unwrap_err();
        assert!(fault.contains("over all functions"), "{fault}");
        assert!(!weigh(&module(10, 300, 1_500)).unwrap().is_small());
        let fault = weigh(&module(1, 1, 150_000)).unwrap_err();
        assert!(fault.contains("operators"), "{fault}");
        assert!(weigh(&module(100_001, 1, 0)).unwrap_err().contains("100001 functions"));
        assert!(weigh(b"\0asm").is_err());
    }

    #[test]
    fn modules_and_what_they_list_are_bounded() {
        let component = |modules: usize, types: usize| {
            let listed = [number(types), [0x60, 0, 0].repeat(types)].concat();
            let module = [b"\0asm\x01\0\0\0".to_vec(), section(1, &listed)].concat();
            let header = b"\0asm\x0d\0\x01\0".to_vec();
            [header, section(1, &module).repeat(modules)].concat()
        };
        let most = weigh(&component(200, 10)).unwrap();
        assert_eq!((most.modules, most.items, most.is_small()), (200, 2_000, true));
        assert!(weigh(&component(201, 0)).unwrap_err().contains("201 modules; at most 200"));
        let fault = weigh(&component(1, 500_001)).unwrap_err();
        assert!(fault.contains("types, imports, exports and instances"), "{fault}");
    }

    #[test]
    fn a_table_of_branches_counts_each_of_them_and_a_parameter_is_a_local() {
        // (br_table 0 0 … 0 (local.get 40)): forty parameters are declared elsewhere.
        let targets = [number(1_000), vec![0; 1_000], vec![0]].concat();
        let body = [vec![0, 0x02, 0x40, 0x20, 40, 0x0e], targets, vec![0x0b, 0x0b]].concat();
        let code = [number(1), number(body.len()), body].concat();
        let wasm = [
            b"\0asm\x01\0\0\0".to_vec(),
            section(1, &[1, 0x60, 0, 0]),
            section(3, &[1, 0]),
            section(10, &code),
        ]
        .concat();
        let weight = weigh(&wasm).unwrap();
        // One for the function, the block, two ends, the table and a thousand targets.
        assert_eq!((weight.joints, weight.operators), (1_005 * 41, 5));
    }

    proptest! {
        #[test]
        fn no_damage_makes_a_look_at_code_panic(
            at in any::<prop::sample::Index>(), change in 1_u8..=255, cut in any::<bool>(),
        ) {
            let mut wasm = module(3, 5, 4);
            let at = at.index(wasm.len());
            match cut {
                true => wasm.truncate(at),
                false => wasm[at] ^= change,
            }
            if let Ok(weight) = weigh(&wasm) {
                prop_assert!(weight.joints <= ALL_JOINTS_MAX && weight.items <= ITEMS_MAX);
            }
        }
    }
}
