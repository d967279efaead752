//! Runs the text of a PTX kernel, so that the text given to a driver is executed at least here.
//!
//! Only the needs of a copying kernel are supported: integer moves, additions and multiplications, one comparison,
//! branches, vector loads and stores in global memory. Blocks and threads run one after another, which is one of the
//! orders that a GPU may take. Any other instruction is an error: the kernel does not load.
//!
//! Source: PTX ISA 8.5, the sections of the instructions below.
//!
//! Invariants
//! - A kernel runs only if every instruction of its text is known; none is skipped.
//! - A thread ends after a bounded number of instructions, and an access that is not aligned or not allocated ends the
//!   run.
//!
//! Leaves to others: the memory behind [`Memory`] (`world.rs`), and the promises that each such memory keeps
//! (`ptx/contract.rs`).

#[cfg(test)]
pub mod contract;

use std::collections::HashMap;

/// A register's number.
type Register = usize;

#[derive(Debug, Clone, Copy)]
enum Operand {
    Register(Register),
    Number(u64),
}

#[derive(Debug, Clone)]
enum Operation {
    Return,
    Branch(String),
    Move32(Register, Operand),
    Move64(Register, Operand),
    Parameter(Register, usize),
    MultiplyWide32(Register, Operand, Operand),
    MultiplyLow64(Register, Operand, Operand),
    Add32(Register, Operand, Operand),
    Add64(Register, Operand, Operand),
    AtLeast32(Register, Operand, Operand),
    Load(Vec<Register>, Operand),
    Store(Operand, Vec<Operand>),
}

#[derive(Debug, Clone)]
struct Instruction {
    /// Runs only if this predicate is true.
    when: Option<Register>,
    operation: Operation,
}

/// A kernel; its parameters have eight bytes each.
#[derive(Debug, Clone)]
pub struct Kernel {
    name: String,
    parameters: Vec<String>,
    code: Vec<Instruction>,
    labels: HashMap<String, usize>,
    /// Names of registers; those set before a thread starts come first.
    registers: Vec<String>,
}

const BLOCK: &str = "%ctaid.x";
const THREAD: &str = "%tid.x";
const THREADS: &str = "%ntid.x";

/// The device's memory as a kernel sees it. `None`: the address is not allocated, and nothing changes. `contract.rs` checks
/// it.
pub trait Memory {
    fn load(&self, at: u64) -> Option<u32>;
    fn store(&mut self, at: u64, value: u32) -> Option<()>;
}

/// The most instructions of one thread.
const STEPS_MAX: u64 = 1 << 16;

impl Kernel {
    /// The one kernel of a module. `None` if any part of it is not understood.
    pub fn parse(text: &str) -> Option<Kernel> {
        let text: Vec<&str> = text
            .lines()
            .map(|line| line.split("//").next().unwrap_or("").trim())
            .collect();
        let text = text.join("\n");
        let (head, rest) = text.split_once(".visible .entry ")?;
        for directive in [".version", ".target", ".address_size 64"] {
            head.contains(directive).then_some(())?;
        }
        let (signature, body) = rest.split_once('{')?;
        let (name, parameters) = signature.split_once('(')?;
        let parameters = parameters
            .trim()
            .strip_suffix(')')?
            .split(',')
            .map(|p| Some(p.trim().strip_prefix(".param .u64 ")?.trim().to_owned()));
        let mut kernel = Kernel {
            name: name.trim().to_owned(),
            parameters: parameters.collect::<Option<_>>()?,
            code: Vec::new(),
            labels: HashMap::new(),
            registers: [BLOCK, THREAD, THREADS].map(String::from).into(),
        };
        let body = body.trim().strip_suffix('}')?;
        for statement in body.replace(":\n", ":;").split(';') {
            let statement = statement.trim();
            if let Some(label) = statement.strip_suffix(':') {
                kernel.labels.insert(label.to_owned(), kernel.code.len());
            } else if !statement.is_empty() && !statement.starts_with(".reg ") {
                let instruction = kernel.instruction(statement)?;
                kernel.code.push(instruction);
            }
        }
        Some(kernel)
    }

    fn instruction(&mut self, statement: &str) -> Option<Instruction> {
        let (when, rest) = match statement.strip_prefix('@') {
            Some(rest) => {
                let (when, rest) = rest.split_once(char::is_whitespace)?;
                (Some(self.register(when)?), rest.trim())
            }
            None => (None, statement),
        };
        let (name, operands) = rest.split_once(char::is_whitespace).unwrap_or((rest, ""));
        let operands = operands.replace(['{', '}'], "");
        let operands: Vec<&str> = operands
            .split(',')
            .map(str::trim)
            .filter(|operand| !operand.is_empty())
            .collect();
        let address =
            |operand: &str| Some(operand.strip_prefix('[')?.strip_suffix(']')?.to_owned());
        let operation = match (name, &operands[..]) {
            ("ret", []) => Operation::Return,
            ("bra", [label]) => Operation::Branch((*label).to_owned()),
            ("mov.u32", [to, a]) => Operation::Move32(self.register(to)?, self.operand(a)?),
            // Generic and global addresses are the same here, as on every GPU so far.
            ("cvta.to.global.u64" | "cvt.u64.u32", [to, a]) => {
                Operation::Move64(self.register(to)?, self.operand(a)?)
            }
            ("ld.param.u64", [to, from]) => {
                let from = address(from)?;
                let number = self.parameters.iter().position(|p| *p == from)?;
                Operation::Parameter(self.register(to)?, number)
            }
            ("ld.global.v2.u32" | "ld.global.v4.u32", [to @ .., from])
                if name.contains(&format!(".v{}.", to.len())) =>
            {
                let to: Option<_> = to.iter().map(|to| self.register(to)).collect();
                Operation::Load(to?, self.operand(&address(from)?)?)
            }
            ("st.global.v4.u32", [to, from @ ..]) if from.len() == 4 => {
                let to = self.operand(&address(to)?)?;
                let from: Option<_> = from.iter().map(|from| self.operand(from)).collect();
                Operation::Store(to, from?)
            }
            (_, [to, a, b]) => {
                let (to, a, b) = (self.register(to)?, self.operand(a)?, self.operand(b)?);
                match name {
                    "mul.wide.u32" => Operation::MultiplyWide32(to, a, b),
                    "mul.lo.u64" => Operation::MultiplyLow64(to, a, b),
                    "add.u32" => Operation::Add32(to, a, b),
                    "add.u64" => Operation::Add64(to, a, b),
                    "setp.ge.u32" => Operation::AtLeast32(to, a, b),
                    _ => return None,
                }
            }
            _ => return None,
        };
        Some(Instruction { when, operation })
    }

    fn register(&mut self, name: &str) -> Option<Register> {
        if !name.starts_with('%') {
            return None;
        }
        let known = self.registers.iter().position(|r| r == name);
        Some(known.unwrap_or_else(|| {
            self.registers.push(name.to_owned());
            self.registers.len() - 1
        }))
    }

    fn operand(&mut self, text: &str) -> Option<Operand> {
        match text.parse() {
            Ok(number) => Some(Operand::Number(number)),
            Err(_) => self.register(text).map(Operand::Register),
        }
    }

    pub fn name(&self) -> &str {
        &self.name
    }

    pub fn parameters(&self) -> usize {
        self.parameters.len()
    }

    /// Runs all threads of all blocks. `None` if an address is not allocated, or a thread does not end.
    pub fn run(
        &self,
        (blocks, threads): (u32, u32),
        arguments: &[u64],
        memory: &mut dyn Memory,
    ) -> Option<()> {
        let mut registers = vec![0; self.registers.len()];
        for block in 0..blocks {
            for thread in 0..threads {
                registers.fill(0);
                registers[..3].copy_from_slice(&[block, thread, threads].map(u64::from));
                self.thread(&mut registers, arguments, memory)?;
            }
        }
        Some(())
    }

    fn thread(
        &self,
        registers: &mut [u64],
        arguments: &[u64],
        memory: &mut dyn Memory,
    ) -> Option<()> {
        let mut at = 0;
        for _ in 0..STEPS_MAX {
            let instruction = self.code.get(at)?;
            at += 1;
            if instruction.when.is_some_and(|when| registers[when] == 0) {
                continue;
            }
            let value = |operand: &Operand| match *operand {
                Operand::Register(register) => registers[register],
                Operand::Number(number) => number,
            };
            let low = |operand: &Operand| value(operand) & u64::from(u32::MAX);
            let (to, result) = match &instruction.operation {
                Operation::Return => return Some(()),
                Operation::Branch(label) => {
                    at = *self.labels.get(label)?;
                    continue;
                }
                Operation::Move32(to, a) => (*to, low(a)),
                Operation::Move64(to, a) => (*to, value(a)),
                Operation::Parameter(to, number) => (*to, *arguments.get(*number)?),
                Operation::MultiplyWide32(to, a, b) => (*to, low(a) * low(b)),
                Operation::MultiplyLow64(to, a, b) => (*to, value(a).wrapping_mul(value(b))),
                Operation::Add32(to, a, b) => (*to, (low(a) + low(b)) & u64::from(u32::MAX)),
                Operation::Add64(to, a, b) => (*to, value(a).wrapping_add(value(b))),
                Operation::AtLeast32(to, a, b) => (*to, u64::from(low(a) >= low(b))),
                Operation::Load(to, from) => {
                    let from = aligned(value(from), to.len())?;
                    for (i, to) in to.iter().enumerate() {
                        registers[*to] = u64::from(memory.load(from + 4 * i as u64)?);
                    }
                    continue;
                }
                Operation::Store(to, from) => {
                    let to = aligned(value(to), from.len())?;
                    for (i, from) in from.iter().enumerate() {
                        memory.store(to + 4 * i as u64, low(from) as u32)?;
                    }
                    continue;
                }
            };
            registers[to] = result;
        }
        None
    }
}

/// The address of this many words, which must be a multiple of their total length.
fn aligned(at: u64, words: usize) -> Option<u64> {
    at.is_multiple_of(4 * words as u64).then_some(at)
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Words(Vec<u32>);

    impl Memory for Words {
        fn load(&self, at: u64) -> Option<u32> {
            self.0.get(at as usize / 4).copied()
        }
        fn store(&mut self, at: u64, value: u32) -> Option<()> {
            *self.0.get_mut(at as usize / 4)? = value;
            Some(())
        }
    }

    #[test]
    fn words_keep_the_contract_of_memory() {
        let mut words = Words(vec![0; 9]);
        contract::keeps_its_contract(&mut words, 0, 9, &[36, 1 << 40]);
    }

    const COPY: &str = "
        .version 7.0
        .target sm_70
        .address_size 64
        .visible .entry copy(.param .u64 from, .param .u64 to) {
            .reg .b64 %f, %t;
            ld.param.u64 %f, [from];  // sixteen bytes
            ld.param.u64 %t, [to];
            ld.global.v4.u32 {%a, %b, %c, %d}, [%f];
            st.global.v4.u32 [%t], {%d, %c, %b, %a};
            ret;
        }";

    #[test]
    fn a_kernel_does_what_its_text_says() {
        let kernel = Kernel::parse(COPY).unwrap();
        assert_eq!((kernel.name(), kernel.parameters()), ("copy", 2));
        let mut memory = Words((0..12).collect());
        kernel.run((1, 1), &[16, 32], &mut memory).unwrap();
        assert_eq!(memory.0[8..], [7, 6, 5, 4]);
    }

    #[test]
    fn kernels_that_a_gpu_would_refuse_are_refused() {
        let kernel = Kernel::parse(COPY).unwrap();
        let run = |from, to| kernel.run((1, 1), &[from, to], &mut Words(vec![0; 12]));
        assert_eq!(run(8, 32), None, "not aligned");
        assert_eq!(run(16, 48), None, "nobody's memory");
        assert!(Kernel::parse(&COPY.replace("ret;", "trap;")).is_none());
        let endless = Kernel::parse(&COPY.replace("ret;", "again:\nbra again;")).unwrap();
        assert_eq!(endless.run((1, 1), &[0, 16], &mut Words(vec![0; 12])), None);
        assert!(Kernel::parse("int main() {}").is_none());
    }
}
