//! Parses WITH and the options after it, by the table of options.
//!
//! Invariants
//! - The table says which value an option takes and in which statements it may be; the parser has no list of options of
//!   its own.
//! - An unknown option is refused with SQL Server's message and, if one is near, the option that was probably meant.
//!
//! Leaves to others: the table (`syntax/option.rs`), and what an option does (`statement`).

use super::Parser;
use crate::message::{Message, OPTION_UNKNOWN};
use crate::syntax::ast::{Compression, LevelWord, Operand, Setting, SettingValue};
use crate::syntax::lexer::TokenKind;
use crate::syntax::option::{Key, Shape, Verb};

impl Parser<'_> {
    pub(super) fn with_options(&mut self, verb: Verb) -> Result<Vec<Setting>, Message> {
        match self.take_word("WITH")? {
            true => self.list(|p| p.option(verb)),
            false => Ok(Vec::new()),
        }
    }

    /// SQL Server's message, and after it the option that was probably meant.
    fn unknown_option(&self, verb: Verb) -> Message {
        let word = self.token.raw;
        // A name may have 128 characters; a longer word is no misspelt option.
        let near = (word.len() <= 128).then(|| Key::nearest(verb, word));
        let mut message = OPTION_UNKNOWN.with(&[&word, &verb.word()]);
        if let Some(near) = near.flatten() {
            message.text += &format!(" Write {near}, if that was meant.");
        }
        self.wrong(message)
    }

    fn option(&mut self, verb: Verb) -> Result<Setting, Message> {
        if self.token.kind != TokenKind::Word {
            return Err(self.syntax());
        }
        let found = Key::find(verb, self.token.raw);
        let spec = found.ok_or_else(|| self.unknown_option(verb))?;
        self.advance()?;
        let value = match spec.shape {
            Shape::Flag => SettingValue::None,
            Shape::Text => {
                self.expect("=")?;
                SettingValue::Operand(self.text_operand()?)
            }
            Shape::Number => {
                self.expect("=")?;
                SettingValue::Operand(self.number_operand()?)
            }
            Shape::Integer => {
                self.expect("=")?;
                SettingValue::Operand(self.integer_operand()?)
            }
            Shape::OptionalNumber => match self.take("=")? {
                true => SettingValue::Operand(self.number_operand()?),
                false => SettingValue::None,
            },
            Shape::Compression => match self.take("(")? {
                true => SettingValue::Compression(self.compression()?),
                false => SettingValue::None,
            },
            Shape::Encryption => self.encryption()?,
            Shape::Move => {
                let from = self.text_operand()?;
                self.expect_word("TO")?;
                let to = self.text_operand()?;
                SettingValue::Move { from, to }
            }
            Shape::Mark => {
                self.expect("=")?;
                let mark = self.text_operand()?;
                let after = match self.take_word("AFTER")? {
                    true => Some(self.text_operand()?),
                    false => None,
                };
                SettingValue::Mark { mark, after }
            }
            Shape::DirectoryName => self.directory_name()?,
        };
        Ok(Setting {
            key: spec.key,
            value,
        })
    }

    /// Numbers may be quoted.
    fn number_operand(&mut self) -> Result<Operand, Message> {
        match self.token.kind {
            TokenKind::Text => Ok(Operand::Text(self.advance()?.value())),
            _ => self.integer_operand(),
        }
    }

    /// A name that does not identify an object: an algorithm, a cipher, a level.
    fn bare_word(&mut self) -> Result<String, Message> {
        match self.token.kind {
            TokenKind::Word => Ok(self.advance()?.raw.to_ascii_uppercase()),
            _ => Err(self.syntax()),
        }
    }

    fn compression(&mut self) -> Result<Compression, Message> {
        self.expect_word("ALGORITHM")?;
        self.expect("=")?;
        let known = ["MS_XPRESS", "QAT_DEFLATE", "ZSTD", "LZ4", "PAGES"];
        if !known.iter().any(|a| self.is_word(a)) {
            return Err(self.syntax());
        }
        let algorithm = self.bare_word()?;
        let mut level = None;
        if self.take(",")? {
            self.expect_word("LEVEL")?;
            self.expect("=")?;
            level = Some(self.level()?);
        }
        self.expect(")")?;
        Ok(Compression { algorithm, level })
    }

    fn level(&mut self) -> Result<LevelWord, Message> {
        if self.take("-")? {
            return Ok(LevelWord::Number(-self.integer()?));
        }
        match self.token.kind {
            TokenKind::Number => Ok(LevelWord::Number(self.integer()?)),
            _ if ["LOW", "MEDIUM", "HIGH"].iter().any(|l| self.is_word(l)) => {
                Ok(LevelWord::Word(self.bare_word()?))
            }
            _ => Err(self.syntax()),
        }
    }

    fn encryption(&mut self) -> Result<SettingValue, Message> {
        self.expect("(")?;
        self.expect_word("ALGORITHM")?;
        self.expect("=")?;
        let ciphers = ["AES_128", "AES_192", "AES_256", "TRIPLE_DES_3KEY"];
        if !ciphers.iter().any(|c| self.is_word(c)) {
            return Err(self.syntax());
        }
        let algorithm = self.bare_word()?;
        self.expect(",")?;
        self.expect_word("SERVER")?;
        let certificate = self.take_word("CERTIFICATE")?;
        if !certificate {
            self.expect_word("ASYMMETRIC")?;
            self.expect_word("KEY")?;
        }
        self.expect("=")?;
        let encryptor = self.identifier()?;
        self.expect(")")?;
        Ok(SettingValue::Encryption {
            algorithm,
            certificate,
            encryptor,
        })
    }

    fn directory_name(&mut self) -> Result<SettingValue, Message> {
        self.expect("(")?;
        self.expect_word("DIRECTORY_NAME")?;
        self.expect("=")?;
        let name = match self.token.kind {
            TokenKind::Text => Some(self.advance()?.value()),
            _ => {
                self.expect_word("NULL")?;
                None
            }
        };
        self.expect(")")?;
        Ok(SettingValue::DirectoryName(name))
    }
}
